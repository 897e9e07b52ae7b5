/* Starts again what a launch function written in Python started, at each case of its problem.

   plan.h, included below, holds the kernels' machine code and, per case, which of them are started,
   how and with which parameters (see plan.py). Needs the driver and nothing else: no CUDA header, no
   Python. The structs of the driver are those of its stable interface (cuda.h).
*/
#include <dlfcn.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

typedef struct {
  const void* in[4];
  void* out[2];
  long long size[6], stride[6];
  float scale;
  int causal;
  void* stream;
  const void* more_in[28];  // behind what variant.cuh says: see Args in variants.py
  void* more_out[14];
} ProfkitArgs;

typedef struct {
  const char* cubin;
  const char* symbol;
} Image;
typedef struct {
  int where, index;  // where: 0 a value, 1 an input, 2 an output, 3 scratch
  uint64_t value;
} Parameter;
typedef struct {
  int image;
  unsigned grid[3], block[3], smem, cluster;
  int cooperative, dependent, first, count;
} Start;
typedef struct {
  uint64_t bytes;
  int zero;
} Memory;
typedef struct {
  long long size[6], stride[6];
  uint32_t scale;  // its bits
  int causal, first, count, first_scratch, scratch_count;
} Case;

// A section of their own: what is hashed of the host's code (host_code.py) leaves them out.
#define IMAGE(i, file)                                                                     \
  __asm__(".section .profkit_images,\"a\"\n.balign 64\nprofkit_image" #i ":\n.incbin \"" \
          file "\"\n.previous");                                                           \
  extern const char image##i[] __asm__("profkit_image" #i) __attribute__((visibility("hidden")));

#include "plan.h"

enum { MOST_PARAMETERS = 128, MOST_SCRATCH = 16, NOT_SUPPORTED = 801, NO_DRIVER = 35, INVALID = 1 };

typedef struct {
  int id;
  char pad[4];
  union {
    char bytes[64];
    int number;
    unsigned shape[3];
  } value;
} Attribute;  // CUlaunchAttribute
typedef struct {
  unsigned grid[3], block[3], smem;
  void* stream;
  Attribute* attributes;
  unsigned count;
} Config;  // CUlaunchConfig
typedef struct {
  int type, handles, location, device;
  void* security;
  size_t most;
  char rest[56];
} PoolProps;  // CUmemPoolProps

static struct {
  int (*load)(void**, const void*);
  int (*get)(void**, void*, const char*);
  int (*set)(void*, int, int);
  int (*launch)(const Config*, void*, void**, void**);
  int (*device)(int*);
  int (*pool)(void**, const PoolProps*);
  int (*pool_set)(void*, int, void*);
  int (*allocate)(uint64_t*, size_t, void*, void*);
  int (*release)(uint64_t, void*);
  int (*fill)(uint64_t, unsigned char, size_t, void*);
  int (*capture_mode)(int*);
} cu;

static int driver(void) {
  static int ready;
  if (ready) return 0;
  void* lib = dlopen("libcuda.so.1", RTLD_NOW);
  if (!lib) return NO_DRIVER;
  *(void**)&cu.load = dlsym(lib, "cuModuleLoadData");
  *(void**)&cu.get = dlsym(lib, "cuModuleGetFunction");
  *(void**)&cu.set = dlsym(lib, "cuFuncSetAttribute");
  *(void**)&cu.launch = dlsym(lib, "cuLaunchKernelEx");
  *(void**)&cu.device = dlsym(lib, "cuCtxGetDevice");
  *(void**)&cu.pool = dlsym(lib, "cuMemPoolCreate");
  *(void**)&cu.pool_set = dlsym(lib, "cuMemPoolSetAttribute");
  *(void**)&cu.allocate = dlsym(lib, "cuMemAllocFromPoolAsync");
  *(void**)&cu.release = dlsym(lib, "cuMemFreeAsync");
  *(void**)&cu.fill = dlsym(lib, "cuMemsetD8Async");
  *(void**)&cu.capture_mode = dlsym(lib, "cuThreadExchangeStreamCaptureMode");
  if (!cu.load || !cu.get || !cu.set || !cu.launch) return NO_DRIVER;
  return !(ready = 1);
}

static int function(const Start* start, void** made) {
  static void* functions[IMAGE_COUNT];
  if ((*made = functions[start->image])) return 0;
  void *module, *found;
  int error = cu.load(&module, IMAGES[start->image].cubin);
  if (!error) error = cu.get(&found, module, IMAGES[start->image].symbol);
  if (error) return error;
  if (start->cluster > 8 && (error = cu.set(found, 14, 1))) return error;  // non-portable size
  *made = functions[start->image] = found;
  return 0;
}

static int allowed_smem(const Start* start, void* f) {  // above 48 KB a function has to ask
  static unsigned most[IMAGE_COUNT];
  if (start->smem <= 48 * 1024 || start->smem <= most[start->image]) return 0;
  int error = cu.set(f, 8, (int)start->smem);
  if (!error) most[start->image] = start->smem;
  return error;
}

static int pool(void** made) {  // of this library's own; it never gives memory back to the driver
  static void* kept;
  if ((*made = kept)) return 0;
  if (!cu.pool || !cu.pool_set || !cu.allocate || !cu.release) return NOT_SUPPORTED;
  PoolProps props;
  memset(&props, 0, sizeof props);
  props.type = props.location = 1;  // pinned, on a device
  int mode = 2;  // relaxed: making a pool is no stream work, a capture under way does not mind it
  int error = cu.device(&props.device);
  if (!error && cu.capture_mode) cu.capture_mode(&mode);
  if (!error) error = cu.pool(made, &props);
  uint64_t keep = UINT64_MAX;
  if (!error) error = cu.pool_set(*made, 4, &keep);
  if (cu.capture_mode) cu.capture_mode(&mode);
  if (!error) kept = *made;
  return error;
}

static int started(const Start* start, const ProfkitArgs* args, const uint64_t* scratch) {
  uint64_t held[MOST_PARAMETERS];
  void *parameters[MOST_PARAMETERS], *f;
  if (start->count > MOST_PARAMETERS) return INVALID;
  for (int i = 0; i < start->count; ++i) {
    const Parameter* p = &PARAMETERS[start->first + i];
    held[i] = p->value;
    int n = p->index;
    if (p->where == 1) held[i] += (uint64_t)(n < 4 ? args->in[n] : args->more_in[n - 4]);
    if (p->where == 2) held[i] += (uint64_t)(n < 2 ? args->out[n] : args->more_out[n - 2]);
    if (p->where == 3) held[i] += scratch[p->index];
    parameters[i] = &held[i];
  }
  int error = function(start, &f);
  if (!error) error = allowed_smem(start, f);
  if (error) return error;
  Attribute attributes[4];
  Config config;
  memset(attributes, 0, sizeof attributes);
  memset(&config, 0, sizeof config);
  memcpy(config.grid, start->grid, sizeof config.grid);
  memcpy(config.block, start->block, sizeof config.block);
  config.grid[0] *= start->cluster;
  config.smem = start->smem, config.stream = args->stream, config.attributes = attributes;
  if (!config.grid[0] || !config.grid[1] || !config.grid[2]) return 0;
  if (start->dependent) {
    attributes[config.count].id = 6;
    attributes[config.count++].value.number = 1;
  }
  if (start->cooperative) {
    attributes[config.count].id = 2;
    attributes[config.count++].value.number = 1;
  }
  if (start->cluster > 1) {
    unsigned shape[3] = {start->cluster, 1, 1};
    attributes[config.count].id = 4;
    memcpy(attributes[config.count++].value.shape, shape, sizeof shape);
    attributes[config.count].id = 5;
    attributes[config.count++].value.number = 1;  // spread
  }
  return cu.launch(&config, f, parameters, NULL);
}

static const Case* wanted(const ProfkitArgs* args) {
  uint32_t scale;
  memcpy(&scale, &args->scale, sizeof scale);
  for (int i = 0; i < CASE_COUNT; ++i) {
    const Case* c = &CASES[i];
    if (c->scale == scale && c->causal == args->causal &&
        !memcmp(c->size, args->size, sizeof c->size) &&
        !memcmp(c->stride, args->stride, sizeof c->stride))
      return c;
  }
  return NULL;
}

// What a search takes for one and the same is the host's machine code too: see host_code.py.
uint64_t profkit_plan(void) { return PLAN_ID; }

int profkit_launch(const ProfkitArgs* args) {
  const Case* c = wanted(args);
  if (!c || !c->count) return NOT_SUPPORTED;
  int error = driver();
  uint64_t scratch[MOST_SCRATCH] = {0};
  void* from = NULL;
  if (error || c->scratch_count > MOST_SCRATCH) return error ? error : INVALID;
  if (c->scratch_count && (error = pool(&from))) return error;
  int held = 0;
  for (; !error && held < c->scratch_count; ++held) {
    const Memory* m = &SCRATCH[c->first_scratch + held];
    error = cu.allocate(&scratch[held], m->bytes ? m->bytes : 1, from, args->stream);
    if (!error && m->zero) error = cu.fill(scratch[held], 0, m->bytes, args->stream);
  }
  for (int i = 0; !error && i < c->count; ++i)
    error = started(&STARTS[c->first + i], args, scratch);
  for (int i = 0; i < held; ++i)
    if (scratch[i]) {
      int ended = cu.release(scratch[i], args->stream);
      error = error ? error : ended;
    }
  return error;
}
