// What a hand does with the rooflines, which stand in the page: a tip, a launch that stands out.

const tip = byId("tip");

/** What is under the pointer, as names and texts; the picture's own title would say it a second time. */
function showTip({ target, clientX: x, clientY: y }) {
  const mark = target.closest?.(".roofline .point, .roofline .roof");
  tip.hidden = !mark;
  if (!mark) return;
  const title = mark.querySelector("title");
  if (title) {
    mark.setAttribute("aria-label", title.textContent);
    title.remove();
  }
  const list = make("dl", "");
  for (const line of mark.getAttribute("aria-label").split("\n")) {
    const [name, ...text] = line.split(": ");
    list.append(make("dt", "", name), make("dd", "", text.join(": ")));
  }
  tip.replaceChildren(list);
  const box = tip.getBoundingClientRect();
  tip.style.left = `${Math.max(4, Math.min(x + 14, innerWidth - box.width - 8))}px`;
  tip.style.top = `${y + 18 + box.height > innerHeight ? Math.max(4, y - box.height - 12) : y + 18}px`;
}
for (const type of ["pointermove", "pointerdown"]) document.addEventListener(type, showTip);

/** The launch under the pointer or the focus stands out on the roofline; "": none. */
function pick(number) {
  for (const launch of document.querySelectorAll("#rooflines [data-launch]")) {
    launch.classList.toggle("picked", launch.dataset.launch === number);
    launch.classList.toggle("dim", number !== "" && launch.dataset.launch !== number);
  }
}
for (const [type, end] of [["mouseover", false], ["focusin", false], ["mouseout", true], ["focusout", true]]) {
  body?.addEventListener(type, (event) => pick(end ? "" : event.target.closest("tr")?.dataset.number ?? ""));
}

/** The words on a diagonal run along it, however wide the picture is. What is folded has no width yet. */
function tilt() {
  for (const chart of document.querySelectorAll(".roofline")) {
    const { width, height } = chart.getBoundingClientRect();
    const { across, up } = chart.dataset;
    const angle = (-180 / Math.PI) * Math.atan2(height / up, width / across);
    for (const words of width ? chart.querySelectorAll(".slope") : []) {
      words.setAttribute("transform", `rotate(${angle}) translate(8 -3)`);
    }
  }
}
document.addEventListener("toggle", tilt, true);
addEventListener("resize", tilt);
tilt();
openHash();
