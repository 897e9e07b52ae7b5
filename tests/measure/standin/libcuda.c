/* A driver without a GPU: device memory is host memory, kernels are host functions.

   Work runs at once, except on a stream that is held (fake_hold) or being captured; then it waits
   for the stream to be synchronised, or for the graph to be launched. Built as libcuda.so.1, which
   is where profkit.lab.measure.device looks. Only what profkit calls is here.
*/
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

typedef struct { const char* name; unsigned grid, block, smem; void (*run)(void*); void* what; size_t size; } Task;
typedef struct { Task tasks[4096]; int count; } List;
typedef struct { List held; int holding; List* graph; double until; } Stream;
typedef struct { double at; } Event;

/* The device's clock: the host's, and what kernels said they take (fake_take), which nobody waits for. */
static double taken;
static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec + t.tv_nsec * 1e-9 + taken;
}
void fake_take(long nanoseconds) { taken += nanoseconds * 1e-9; }
static Stream* streams[64];
static int stream_count;

static void drain(Stream* s) {
  double ahead = s->until - now();
  if (ahead > 1e-3) usleep(ahead * 1e6);  /* so that the host notices who waits */
  else if (ahead > 0) taken += ahead;
  for (int i = 0; i < s->held.count; ++i) s->held.tasks[i].run(s->held.tasks[i].what);
  s->held.count = 0, s->holding = 0;
}
/* What a stand-in kernel calls instead of <<<>>>. `what` is copied. */
void fake_launch(void* stream, const char* name, unsigned grid, unsigned block, unsigned smem,
                 void (*run)(void*), const void* what, size_t size) {
  Stream* s = stream;
  void* copy = memcpy(malloc(size ? size : 1), what, size);
  Task task = {name, grid, block, smem, run, copy, size};
  if (s && s->graph) s->graph->tasks[s->graph->count++] = task;
  else if (s && s->holding) s->held.tasks[s->held.count++] = task;
  else run(copy);
}
void fake_hold(void* stream, double seconds) {
  Stream* s = stream;
  if (s->graph) return;
  s->holding = 1, s->until = now() + seconds;
}

int cuGetErrorName(int code, const char** name) {
  *name = code == 700 ? "CUDA_ERROR_ILLEGAL_ADDRESS" : code == 2 ? "CUDA_ERROR_OUT_OF_MEMORY"
        : code == 100 ? "CUDA_ERROR_NO_DEVICE" : code == 801 ? "CUDA_ERROR_NOT_SUPPORTED" : NULL;
  return *name ? 0 : 1;
}
int cuInit(unsigned flags) { (void)flags; return getenv("FAKE_NO_GPU") ? 100 : 0; }
int cuDeviceGet(int* d, int i) { *d = i; return 0; }
int cuDeviceGetCount(int* n) { const char* v = getenv("FAKE_GPUS"); *n = v ? atoi(v) : 1; return 0; }
int cuDriverGetVersion(int* v) { *v = 13000; return 0; }
int cuDeviceGetName(char* name, int n, int d) { (void)d; snprintf(name, n, "Stand-in GPU"); return 0; }
int cuDeviceGetPCIBusId(char* id, int n, int d) { (void)d; snprintf(id, n, "0000:00:00.0"); return 0; }
int cuDeviceGetAttribute(int* v, int a, int d) {
  (void)d;
  *v = a == 75 ? 9 : a == 76 ? 0 : a == 16 ? 132 : a == 38 ? 1 << 16 : a == 13 ? 1980000
     : a == 36 ? 3201000 : a == 37 ? 6144 : 0;
  return 0;
}
int cuDevicePrimaryCtxRetain(void** c, int d) { (void)d; *c = (void*)1; return 0; }
int cuCtxSetCurrent(void* c) { (void)c; return 0; }
int cuMemAlloc_v2(uint64_t* p, size_t n) {
  if (getenv("FAKE_MEMORY") && n > strtoull(getenv("FAKE_MEMORY"), 0, 10)) return 2;
  *p = (uint64_t)aligned_alloc(256, (n + 255) / 256 * 256);
  return 0;
}
int cuMemFree_v2(uint64_t p) { free((void*)p); return 0; }
int cuMemcpyHtoD_v2(uint64_t d, const void* s, size_t n) { memcpy((void*)d, s, n); return 0; }
int cuMemcpyDtoD_v2(uint64_t d, uint64_t s, size_t n) { memcpy((void*)d, (void*)s, n); return 0; }
int cuMemcpyDtoH_v2(void* d, uint64_t s, size_t n) { memcpy(d, (void*)s, n); return 0; }
int cuMemsetD8_v2(uint64_t p, unsigned char v, size_t n) { memset((void*)p, v, n); return 0; }
int cuCtxSynchronize(void) {
  for (int i = 0; i < stream_count; ++i) drain(streams[i]);
  return 0;
}
int cuStreamSynchronize(void* s) { if (s) drain(s); return 0; }
int cuStreamCreate(void** s, unsigned f) {
  (void)f;
  *s = streams[stream_count++ % 64] = calloc(1, sizeof(Stream));
  return 0;
}
int cuEventCreate(void** e, unsigned f) { (void)f; *e = calloc(1, sizeof(Event)); return 0; }
static void happen(void* what) { (*(Event**)what)->at = now(); }
int cuEventRecord(void* e, void* s) { fake_launch(s, 0, 0, 0, 0, happen, &e, sizeof e); return 0; }
int cuEventElapsedTime(float* ms, void* a, void* b) {
  *ms = (float)((((Event*)b)->at - ((Event*)a)->at) * 1e3);
  return 0;
}
int cuStreamBeginCapture_v2(void* s, int mode) {
  (void)mode;
  ((Stream*)s)->graph = calloc(1, sizeof(List));
  return 0;
}
int cuStreamEndCapture(void* s, void** g) {
  *g = ((Stream*)s)->graph;
  ((Stream*)s)->graph = NULL;
  return 0;
}
int cuGraphInstantiateWithFlags(void** e, void* g, uint64_t f) { (void)f; *e = g; return 0; }
static void replay(void* what) {
  List* g = *(List**)what;
  for (int i = 0; i < g->count; ++i) g->tasks[i].run(g->tasks[i].what);
}
int cuGraphLaunch(void* g, void* s) { fake_launch(s, 0, 0, 0, 0, replay, &g, sizeof g); return 0; }
int cuGraphGetNodes(void* g, void** nodes, size_t* n) {
  List* list = g;
  if (nodes) for (size_t i = 0; i < *n; ++i) nodes[i] = &list->tasks[i];
  *n = list->count;
  return 0;
}
int cuGraphNodeGetType(void* node, int* type) { *type = ((Task*)node)->name ? 0 : 2; return 0; }
typedef struct { void* func; unsigned grid[3], block[3], smem; void *params, *extra, *kern, *ctx; } Node;
int cuGraphKernelNodeGetParams_v2(void* node, Node* p) {
  Task* t = node;
  memset(p, 0, sizeof *p);
  p->func = t, p->grid[0] = t->grid, p->block[0] = t->block, p->smem = t->smem;
  p->grid[1] = p->grid[2] = p->block[1] = p->block[2] = 1;
  return 0;
}
int cuFuncGetName(const char** name, void* f) { *name = ((Task*)f)->name; return 0; }
int cuFuncGetAttribute(int* v, int a, void* f) { (void)f; *v = a == 4 ? 32 : 0; return 0; }
int cuOccupancyMaxActiveBlocksPerMultiprocessor(int* n, void* f, int block, size_t smem) {
  (void)f;
  int by_threads = 2048 / (block ? block : 1), by_smem = (228 << 10) / (smem + 1024);
  *n = by_threads < by_smem ? by_threads : by_smem;
  return 0;
}
// Modules: a kernel of any module is the one that doubles halves; its parameters are in, out and n.
int cuModuleLoadData(void** module, const void* image) {
  if (memcmp(image, "\x7f" "ELF", 4)) return 200;
  return *module = (void*)image, 0;
}
/* Arrays of modules: a mebibyte each, where one is asked for. */
static struct { void* module; char* name; uint64_t* words; } globals[1024];
static int global_count;
enum { WORDS = 1 << 17 };
static uint64_t* global_of(void* module, const char* name) {
  for (int i = 0; i < global_count; ++i)
    if (globals[i].module == module && !strcmp(globals[i].name, name)) return globals[i].words;
  return 0;
}
int cuModuleGetGlobal_v2(uint64_t* place, size_t* size, void* module, const char* name) {
  if (!module || strncmp(name, "profkit_", 8)) return 500;
  if (!global_of(module, name)) {
    globals[global_count].module = module, globals[global_count].name = strdup(name);
    globals[global_count++].words = calloc(WORDS, 8);
  }
  *place = (uint64_t)global_of(module, name), *size = WORDS * 8;
  return 0;
}
/* A kernel that counts: each of its counters goes up by one. */
static void count(void* what) {
  void* module = *(void**)what;
  uint64_t* words = global_of(module, "profkit_counts");
  for (int i = 0; words && i < WORDS; ++i) ++words[i];
}
int cuModuleGetFunction(void** f, void* m, const char* name) {
  Task* made = calloc(1, sizeof *made);
  void** module = malloc(sizeof *module);
  *module = m;
  *made = (Task){strdup(name), 1, 1, 0, count, module, sizeof *module};
  *f = made;
  return 0;
}
int cuModuleUnload(void* module) { (void)module; return 0; }
int cuFuncGetModule(void** module, void* f) { (void)f; *module = 0; return 0; }
int cuMemGetAddressRange_v2(uint64_t* base, size_t* size, uint64_t address) {
  (void)address;
  *base = 0, *size = (size_t)1 << 48;
  return 0;
}
/* With FAKE_HANGS=N nothing ends any more from the N-th question on. */
int cuEventQuery(void* e) {
  static int asked;
  const char* hangs = getenv("FAKE_HANGS");
  (void)e;
  cuCtxSynchronize();
  return hangs && ++asked >= atoi(hangs) ? 600 : 0;
}
int cuGraphKernelNodeGetAttribute(void* node, int number, void* value) {
  (void)node, (void)number, (void)value;
  return 1;
}
int cuFuncSetAttribute(void* f, int a, int v) { (void)f; (void)a; (void)v; return 0; }
static void twice(void* what) {
  uint64_t* p = what;
  const uint16_t* in = (const uint16_t*)p[0];
  uint16_t* out = (uint16_t*)p[1];
  for (int32_t i = 0; i < (int32_t)p[2]; ++i) out[i] = in[i] & 0x7fff ? in[i] + 0x400 : in[i];
}
typedef struct { unsigned grid[3], block[3], smem; void* stream; void* attributes; unsigned n; } Launch;
int cuLaunchKernelEx(const Launch* c, void* f, void** parameters, void** extra) {
  (void)extra;
  Task* t = f;
  if (!parameters) {
    fake_launch(c->stream, t->name, c->grid[0], c->block[0], c->smem, t->run, t->what, t->size);
    return 0;
  }
  uint64_t held[3];
  for (int i = 0; i < 3; ++i) held[i] = *(uint64_t*)parameters[i];
  fake_launch(c->stream, t->name, c->grid[0], c->block[0], c->smem, twice, held, sizeof held);
  return 0;
}

int cuProfilerStart(void) { return 0; }
int cuProfilerStop(void) { return 0; }
