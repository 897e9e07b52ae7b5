// The table of launches: sort, filter, search, and the keys.

const table = byId("overview");
const body = table?.tBodies[0];
const rowsOfTable = () => (body ? [...body.rows] : []);
const shownRows = () => rowsOfTable().filter((row) => !row.hidden);
const NUMBERS = new Set(["number", "time", "part", "gain", "roof", "occupancy"]);

/** Rows by one column; what is not known stays at the end, whichever way. */
function sortBy(key, ascending) {
  const value = (row) => (NUMBERS.has(key) ? parseFloat(row.dataset[key]) : row.dataset[key]);
  const known = (x) => (NUMBERS.has(key) ? !Number.isNaN(x) : x !== "");
  const order = rowsOfTable().sort((a, b) => {
    const [x, y] = [value(a), value(b)];
    if (known(x) !== known(y)) return known(x) ? -1 : 1;
    const way = NUMBERS.has(key) ? x - y : x.localeCompare(y);
    return (known(x) && way * (ascending ? 1 : -1)) || a.dataset.number - b.dataset.number;
  });
  body.append(...order);
  for (const button of table.querySelectorAll("th button")) {
    const head = button.closest("th");
    if (button.dataset.sort === key) head.setAttribute("aria-sort", ascending ? "ascending" : "descending");
    else head.removeAttribute("aria-sort");
  }
}

/** Show the rows that hold every word and fit every choice. */
function filterRows() {
  const words = byId("search").value.toLowerCase().split(/\s+/).filter(Boolean);
  const choices = ["bound", "device", "case"].map((key) => [key, byId(`by-${key}`)?.value ?? ""]);
  for (const row of rowsOfTable()) {
    const text = `${row.textContent.replaceAll("\u00a0", " ")} ${row.dataset.report} ${row.dataset.device}`.toLowerCase();
    const fits = choices.every(([key, wanted]) => !wanted || row.dataset[key] === wanted);
    row.hidden = !(fits && words.every((word) => text.includes(word)));
    byId(`launch-${row.dataset.number}`).hidden = row.hidden;
  }
  byId("nothing").hidden = shownRows().length > 0;
  for (const chip of document.querySelectorAll(".chips button")) {
    chip.setAttribute("aria-pressed", String(byId("by-bound")?.value === chip.dataset.bound));
  }
  byId("found").textContent = `${shownRows().length} of ${rowsOfTable().length}`;
}

function moveFocus(by) {
  const rows = shownRows();
  const at = rows.indexOf(document.activeElement.closest?.("#overview tbody tr"));
  rows[Math.min(Math.max(at + by, 0), rows.length - 1)]?.focus();
}

function keys(event) {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const typing = /^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName);
  const row = event.target.closest?.("#overview tbody tr");
  if (event.key === "Escape") {
    if (typing) { byId("search").value = ""; filterRows(); }
    const from = event.target.closest?.("details.one")?.dataset.launch;
    const back = from && byId(`row-${from}`);
    if (!back) byId("launches").scrollIntoView();
    (back ?? shownRows()[0] ?? byId("search")).focus({ preventScroll: !back });
  } else if (typing) return;
  else if (event.key === "/") byId("search").focus();
  else if (event.key === "j" || (row && event.key === "ArrowDown")) moveFocus(1);
  else if (event.key === "k" || (row && event.key === "ArrowUp")) moveFocus(-1);
  else if (event.key === "Enter" && row && event.target === row) openLaunch(row.dataset.number);
  else return;
  event.preventDefault();
}

if (table) {
  for (const button of table.querySelectorAll("th button")) {
    button.addEventListener("click", () => {
      const now = button.closest("th").getAttribute("aria-sort");
      const first = NUMBERS.has(button.dataset.sort) && button.dataset.sort !== "number" ? "descending" : "ascending";
      sortBy(button.dataset.sort, (now ? now !== "ascending" : first === "ascending"));
    });
  }
  byId("filters").addEventListener("input", filterRows);
  for (const chip of document.querySelectorAll(".chips button")) {
    chip.addEventListener("click", () => {
      const choice = byId("by-bound");
      if (choice) choice.value = choice.value === chip.dataset.bound ? "" : chip.dataset.bound;
      filterRows();
    });
  }
  byId("clear").addEventListener("click", () => {
    byId("filters").reset();
    filterRows();
    byId("search").focus();
  });
  byId("filters").addEventListener("submit", (event) => event.preventDefault());
  body.addEventListener("click", (event) => {
    const row = event.target.closest("tr");
    if (row && !event.target.closest("a") && !String(getSelection())) openLaunch(row.dataset.number);
  });
  document.addEventListener("keydown", keys);
  filterRows();
}
