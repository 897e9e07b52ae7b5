// Two launches side by side. profkit/evidence/counters.py says what counts as moved; its thresholds
// come with the page, and a test holds the two to one answer.

/** A share in per cent with the digits that it is printed with: a reader subtracts those. */
function roundAsPrinted(share) {
  const percent = 100 * share;
  return Math.abs(percent) >= 99.95 ? Math.round(percent) : Number(percent.toPrecision(3));
}

/** How a value changed, or null when it did not: the row of the table and how far it moved. */
function movedBy(metric, before, after) {
  if (before === null || after === null) return null;
  const { points, relative } = DATA.thresholds;
  const far = Math.abs(after - before);
  if (metric.unit === "share") {
    if (far < points) return null;
    const change = roundAsPrinted(after) - roundAsPrinted(before);
    return { weight: far * 4, text: `${change >= 0 ? "+" : "-"}${Math.abs(change).toFixed(1)} points` };
  }
  if (far <= relative * Math.max(Math.abs(before), Math.abs(after))) return null;
  const factor = before ? after / before : Infinity;
  const known = factor > 0 && Number.isFinite(factor);
  const weight = known ? Math.min(Math.abs(Math.log2(factor)), 4) : 4;
  if (!Number.isFinite(factor)) return { weight, text: "new" };
  if (factor === 0) return { weight, text: "gone" };
  return { weight, text: factor < 10 ? `${factor.toFixed(2)}x` : `${Math.round(factor).toLocaleString("en")}x` };
}

/** Every metric of the kernel that differs, farthest first. */
function moved(before, after) {
  return DATA.metrics
    .map((metric, i) => ({ metric, i, by: movedBy(metric, before.values[i], after.values[i]) }))
    .filter((x) => x.by && !DATA.not_the_kernel.some((start) => x.metric.name.startsWith(start)))
    .sort((a, b) => Math.round(1e6 * b.by.weight) - Math.round(1e6 * a.by.weight));
}

/** Whether this much is enough for a rule's cause. */
function isThere(measure, amount) {
  if (measure.border === null) return amount > 0;
  return measure.less_is_worse ? amount < measure.border : amount >= measure.border;
}

/** How much of a rule's cause there is on either side, by the measure that is enough where it fired. */
function measureCause(rule, before, after, firedBefore) {
  const found = [];
  for (const [n, measure] of (DATA.measures[rule] ?? []).entries()) {
    const [one, other] = [before, after].map((launch) => launch.amounts[rule]?.[n]);
    if (!one || !other) continue;
    const cause = { measure, before: one[0], after: other[0] };
    if (measure.of_time) cause.cycles = [countCycles(before, one[0]), countCycles(after, other[0])];
    if (cause.cycles?.includes(null)) delete cause.cycles;
    cause.text = sayAmounts(cause, [one[1], other[1]]);
    if (isThere(measure, firedBefore ? cause.before : cause.after)) return cause;
    found.push(cause);
  }
  return found[0] ?? null;
}

/** Whether the side without the finding has less of its cause, and too little for the cause. */
function hasLeft(measure, fired, clear) {
  const less = measure.less_is_worse ? clear > fired : clear < fired;
  return less && (measure.border === null || !isThere(measure, clear));
}

/** A share of a launch's time in cycles of the SMs, or null where no clock was collected. */
function countCycles(launch, share) {
  const [time, clock] = ["time", "sm_clock"].map(
    (name) => launch.values[DATA.metrics.findIndex((metric) => metric.name === name)] ?? null,
  );
  return time === null || clock === null ? null : share * time * clock;
}

/** Whether two amounts differ by a tenth, and by more than two runs of one kernel. */
function hasChanged(unit, before, after) {
  const { points, relative, gain } = DATA.thresholds;
  const far = Math.abs(after - before);
  if (unit === "share" ? far < points : far <= relative * Math.max(Math.abs(before), Math.abs(after)))
    return false;
  if (before <= 0 || after <= 0) return true;
  return Math.abs(Math.log(before / after)) > gain;
}

/** A number with three figures, as profkit/reports/figures.py writes it: 148 k, 69.9 k, 385. */
function writeCount(value) {
  const sizes = [[1e12, " T"], [1e9, " G"], [1e6, " M"], [1e3, " k"], [1, ""]];
  const [size, prefix] = sizes.find(([least]) => Math.abs(value) >= 0.9995 * least) ?? [1, ""];
  const scaled = Number((value / size).toPrecision(3));
  const exponent = scaled === 0 ? 2 : Math.floor(Math.log10(Math.abs(scaled)));
  return `${scaled.toFixed(Math.max(0, 2 - exponent))}${prefix}`;
}

/** Whether a share of the time went another way than the time itself. */
function isShareAgainstCycles({ measure, before, after, cycles }) {
  if (!cycles || !hasChanged(measure.unit, before, after)) return false;
  const isSameWay = cycles[1] > cycles[0] === after > before;
  return !(isSameWay && hasChanged("count", ...cycles));
}

/** How much there is on both sides; the cycles first where the share went another way than they did. */
function sayAmounts(cause, texts) {
  const { measure, before, after, cycles } = cause;
  let said = `${texts.join(" -> ")} ${measure.what}`;
  if (texts[0] === texts[1]) said = `${texts[0]} ${measure.what}, as before`;
  if (!cycles) return said;
  const both = `${cycles.map(writeCount).join(" -> ")} cycles`;
  if (isShareAgainstCycles(cause)) {
    const share = after > before ? "larger share of a shorter launch" : "smaller share of a longer launch";
    return `${both}, but a ${share}: ${said}`;
  }
  if (hasChanged(measure.unit, before, after) || !hasChanged("count", ...cycles)) return said;
  return `${both}, about the same share: ${said}`;
}

/** A metric on both sides in one form: 65.5 k and 131 k, not 65,536; a count stands in full where both do. */
function textsOf(metric, i, before, after) {
  const values = [before.values[i], after.values[i]];
  if (metric.unit !== "count" || values.every((value) => Math.abs(value) < 1e5))
    return [textOf(before, i), textOf(after, i)];
  return [before, after].map((side) =>
    Math.abs(side.values[i]) < 999.5 ? textOf(side, i) : writeCount(side.values[i]));
}

/** Whether there is clearly more or less of a cause, in the word of the screen for that. */
function compareAmounts(cause) {
  const { measure, before, after, cycles } = cause;
  const [was, now] = cycles ?? [before, after];
  if (!hasChanged(cycles ? "count" : measure.unit, was, now)) return "unchanged";
  const isLess = measure.less_is_worse ? now > was : now < was;
  if (isShareAgainstCycles(cause)) return isLess ? "fewer cycles" : "more cycles";
  if (measure.less_is_worse) return isLess ? "better" : "worse";
  return isLess ? "smaller" : "larger";
}

/** Whether a finding grew or shrank: by its cause's amount where that was counted, else by its bound. */
function compareSides(was, now, cause) {
  if (cause) return compareAmounts(cause);
  if (was[2] === null || now[2] === null) return "unchanged";
  return now[2] < was[2] ? "smaller" : "larger";
}

const MORE = ["larger", "more cycles", "worse"];

/** What became of a finding, in the words of the screen. */
function nameState(rule, what, explainedBy, was, now, cause) {
  if (what === "gone" && cause && 0.1 * cause.before < cause.after && cause.after < cause.before)
    return "no longer reported"; // more than a tenth of it is left
  if (["gone", "new", "unknown"].includes(what)) return what;
  if (what === "stays") return "unchanged";
  if (what === "hidden" && !explainedBy) return "no longer reported";
  if (what === "hidden") return "still there";
  const state = compareSides(was, now, cause);
  if (what !== "uncovered") return state;
  if (MORE.includes(state)) return "new"; // it grew until it was reported
  return state === "unchanged" ? "reported now" : state;
}

/** What became of a rule, as in profkit/evidence/counters.py; null when it fires on neither side. */
function became(was, now, cause) {
  const [one, other] = [was[0], now[0]];
  if (one !== "fires" && other !== "fires") return null;
  if (one === "unknown" || other === "unknown") return "unknown";
  if (other === "clear") return !cause || hasLeft(cause.measure, cause.before, cause.after) ? "gone" : "hidden";
  if (one === "clear") return !cause || hasLeft(cause.measure, cause.after, cause.before) ? "new" : "uncovered";
  const [a, b] = [was[2], now[2]];
  if ((a === null) !== (b === null)) return "changed";
  if (a && b && Math.abs(Math.log(a / b)) > DATA.thresholds.gain) return "changed";
  return cause && hasChanged(cause.measure.unit, cause.before, cause.after) ? "changed" : "stays";
}

/** The first finding of a launch that explains what a rule saw in another launch, or null. */
function explanation(rule, finding, launch) {
  const own = finding[4];
  const isUnitFull = DATA.unit_bounds.includes(launch.bound.split(" ")[0]);
  for (const [other, [status, , , , , explained, note]] of Object.entries(launch.findings)) {
    if (status !== "fires" || note || other === rule) continue;
    if (own.length === 1 && explained.includes(own[0])) return other;
    if (DATA.shapes.includes(rule) && (isUnitFull || DATA.shapes.includes(other))) return other;
  }
  return null;
}

/** How much of the cause there is, and why it is clear on a side that has enough of it. */
function whyClear(rule, what, explainedBy, amount) {
  const relation = DATA.shapes.includes(rule) ? "hidden" : "caused";
  if (what === "hidden")
    return explainedBy ? `${amount}; now ${relation} by ${explainedBy}` : `no longer reported (${amount})`;
  return explainedBy ? `${amount}; ${relation} by ${explainedBy} until now` : `not reported before (${amount})`;
}

const BECAME = ["gone", "new", "hidden", "uncovered", "changed", "unknown", "stays"];

/** Rule -> status, cause, gain and its text. */
const statuses = ({ findings, clear }) => ({
  ...findings, ...Object.fromEntries(clear.map((n) => [DATA.rules[n], ["clear"]])),
});

function findingRows(before, after) {
  const most = (x) => Math.max(1, ...[x.was, x.now].map((side) => (side[0] === "fires" && side[2]) || 1));
  const [was, now] = [before, after].map(statuses);
  return Object.keys(was)
    .filter((rule) => rule in now)
    .map((rule) => ({ rule, was: was[rule], now: now[rule] }))
    .map((x) => ({ ...x, cause: measureCause(x.rule, before, after, x.was[0] === "fires") }))
    .map((x) => ({ ...x, what: became(x.was, x.now, x.cause) }))
    .filter((x) => x.what)
    .sort((a, b) => BECAME.indexOf(a.what) - BECAME.indexOf(b.what) || most(b) - most(a))
    .map(({ rule, was, now, cause, what }) => {
      const moved = what === "hidden" || what === "uncovered";
      const gain = (side) => (side[0] === "fires" ? side[3] || "-" : moved && side[0] === "clear" ? "-" : side[0]);
      let said = (now[0] === "fires" ? now : was)[1];
      let explainedBy = null;
      if (what === "hidden") explainedBy = explanation(rule, was, after);
      if (what === "uncovered") explainedBy = explanation(rule, now, before);
      if (moved) said = whyClear(rule, what, explainedBy, cause.text);
      else if (cause && (what === "gone" || what === "changed")) said = cause.text;
      return [nameState(rule, what, explainedBy, was, now, cause), rule, gain(was), gain(now), said];
    });
}

const FIRST = 15;

function movedTable(rows) {
  return make("div", "wide moved", tableOf(["metric", ">before", ">after", ">change", "meaning"], rows));
}

/** What moved less, behind a fold. */
function rest(rows) {
  return make("details", "more", make("summary", "", `${rows.length} more`), movedTable(rows));
}

function compareChosen() {
  const [before, after] = ["before", "after"].map((id) => DATA.launches[Number(byId(id).value) - 1]);
  if (!before || !after) return;
  const time = DATA.metrics.findIndex((metric) => metric.name === "time");
  const sides = (get) => (get(before) === get(after) ? get(before) : `${get(before)} → ${get(after)}`);
  const facts = [
    ["kernel", sides((x) => x.kernel)],
    ["bound", sides((x) => x.bound)],
    ["time under ncu", `${textOf(before, time)} → ${textOf(after, time)} (one launch each: no verdict)`],
  ];
  if (before.timed && after.timed) facts.push(["timed without a profiler", `${before.timed} → ${after.timed}`]);
  const rows = moved(before, after).map(({ metric, i, by }) => [
    metric.name, ...textsOf(metric, i, before, after), by.text, metric.meaning,
  ]);
  const findings = findingRows(before, after);
  byId("compared").replaceChildren(
    make("dl", "facts", ...facts.map(([name, text]) => make("div", "", make("dt", "", name), make("dd", "", text)))),
    make("h3", "", "Findings"),
    make("div", "wide", tableOf(["", "rule", ">gain before", ">gain after", "cause"], findings)),
    make("h3", "", `Metrics that moved (${rows.length})`),
    movedTable(rows.slice(0, FIRST)),
    ...(rows.length > FIRST ? [rest(rows.slice(FIRST))] : []),
  );
  reachable(byId("compared"));
}

/** The first two launches that belong together: two variants at one case, or one kernel twice. */
function findPair() {
  const alike = (one, other) =>
    one.case && one.case === other.case ? one.variant !== other.variant : one.kernel === other.kernel;
  for (const one of DATA.launches)
    for (const other of DATA.launches)
      if (one.number < other.number && alike(one, other)) return [one.number, other.number];
  return null;
}

if (DATA.launches.length > 1) {
  const pair = findPair();
  for (const [id, chosen] of [["before", pair?.[0]], ["after", pair?.[1]]]) {
    const select = byId(id);
    if (!pair) select.append(make("option", "", "choose a launch"));
    for (const launch of DATA.launches) {
      const option = make("option", "", `${launch.number} ${launch.label}`);
      option.value = launch.number;
      option.selected = launch.number === chosen;
      select.append(option);
    }
    select.addEventListener("change", compareChosen);
  }
  byId("swap").addEventListener("click", () => {
    const [before, after] = [byId("before"), byId("after")];
    [before.value, after.value] = [after.value, before.value];
    compareChosen();
  });
  compareChosen();
} else byId("compare").hidden = true;

document.documentElement.dataset.ready = "yes";
