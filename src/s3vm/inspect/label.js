"use strict";
// Shows a row, sends its label, and looks every two seconds whether a fit has chosen other rows.
const token = new URLSearchParams(location.search).get("token");
const keys = "1234567890abcdefghijklmnopqrstuvwxyz";
const at = (id) => document.getElementById(id);
let state = null, busy = false;

async function ask(path, given) {
  const options = given && { method: "POST", body: JSON.stringify(given) };
  const answer = await fetch(`${path}?token=${encodeURIComponent(token)}`, options);
  if (!answer.ok) throw new Error(await answer.text());
  return answer.json();
}

async function act(path, given) {
  if (busy) return;
  busy = true;
  try {
    show(await ask(path, given), true);
  } catch (problem) {
    at("problem").textContent = `Not saved: ${problem.message}. Is s3vm label still running?`;
  } finally {
    busy = false;
  }
}

function element(name, text, ...children) {
  const made = document.createElement(name);
  made.append(...(text === null ? [] : [text]), ...children);
  return made;
}

function pixels(numbers) {
  const side = Math.sqrt(numbers.length), canvas = element("canvas", null);
  canvas.width = canvas.height = side;
  canvas.style.width = "12rem";
  const low = Math.min(...numbers), range = Math.max(...numbers) - low || 1;
  const context = canvas.getContext("2d"), picture = context.createImageData(side, side);
  numbers.forEach((value, k) => picture.data.set([...Array(3).fill(255 - (255 * (value - low)) / range), 255], 4 * k));
  context.putImageData(picture, 0, 0);
  return canvas;
}

function showRow() {
  const place = at("row");
  place.replaceChildren();
  if (state.row === null) return place.append("Every row has a label.");
  const numbers = state.cells.map(([, cell]) => (cell.trim() === "" ? NaN : Number(cell)));
  const side = Math.sqrt(numbers.length);
  if (Number.isInteger(side) && side >= 4 && numbers.every(Number.isFinite)) return place.append(pixels(numbers));
  const list = element("dl", null);
  state.cells.forEach(([name, cell, isImage]) => {
    let value = element("dd", cell || "–");
    if (isImage) {
      const image = element("img", null);
      image.src = `/image?${new URLSearchParams({ row: state.row, name, token })}`;
      image.alt = cell;
      value = element("dd", null, image);
    }
    list.append(element("dt", name), value);
  });
  place.append(list);
}

// A class whose name is a single character has that as its key, the others take those that are free.
function keysOf(names) {
  const own = names.filter((name) => name.length === 1 && keys.includes(name));
  const free = [...keys].filter((key) => !own.includes(key));
  return names.map((name) => (own.includes(name) ? name : free.shift() ?? ""));
}

function showClasses() {
  const place = at("classes"), chosen = keysOf(Object.keys(state.classes));
  place.replaceChildren();
  Object.entries(state.classes).forEach(([name, count], k) => {
    const button = element("button", null, element("kbd", chosen[k]), name, element("small", String(count)));
    button.addEventListener("click", () => act("/label", { row: state.row, label: name }));
    place.append(button);
  });
  const form = element("form", null, element("input", null), element("button", "add class"));
  form.firstChild.setAttribute("aria-label", "new class");
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    const label = form.firstChild.value.trim();
    if (label) act("/label", { row: state.row, label });
  });
  place.append(form);
}

function showCurve() {
  const points = state.history.map(({ labels, error }) => [labels, error]);
  at("curve").replaceChildren();
  if (points.length < 2) return;
  const most = Math.max(...points.map(([, error]) => error), 0.01), [first, last] = [points[0][0], points.at(-1)[0]];
  const line = document.createElementNS("http://www.w3.org/2000/svg", "polyline");
  const place = ([n, error]) => `${5 + (390 * (n - first)) / (last - first || 1)},${95 - (90 * error) / most}`;
  line.setAttribute("points", points.map(place).join(" "));
  line.setAttribute("fill", "none");
  line.setAttribute("stroke", "currentColor");
  line.setAttribute("stroke-width", "2");
  at("curve").append(line);
}

function show(next, acted = false) {
  const before = state;
  // While a person looks at a row, a fit does not take it away.
  state = !acted && before && before.row !== null ? { ...next, row: before.row, cells: before.cells } : next;
  const labeled = Object.values(state.classes).reduce((sum, count) => sum + count, 0);
  at("count").replaceChildren(element("strong", String(labeled)), ` of ${state.rows} rows labelled`);
  const percent = (share) => `${(100 * share).toFixed(1)}%`, error = state.history.at(-1);
  const told = error && [element("strong", percent(error.error)), ` held-out error (${percent(error.low)} to ${percent(error.high)})`];
  at("error").replaceChildren(...(told ?? ["held-out error: not known yet"]));
  at("status").textContent = state.fitting ? "fitting …" : "";
  at("problem").textContent = state.problem;
  at("output").textContent = state.output;
  if (acted || !before || before.row === null) showRow();
  if (acted || !before) showClasses();
  showCurve();
}

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || !state) return;
  const typing = event.target instanceof HTMLInputElement;
  if (event.key === "Escape") return event.target.blur();
  if (typing) return;
  const known = Object.keys(state.classes), k = keysOf(known).indexOf(event.key);
  if (event.key === "Backspace") act("/undo", {});
  else if (event.key === "+") document.querySelector("input").focus();
  else if (state.row === null) return;
  else if (event.key === " ") act("/skip", { row: state.row });
  else if (k >= 0) act("/label", { row: state.row, label: known[k] });
  else return;
  event.preventDefault();
});

const look = () => busy || ask("/state").then((next) => busy || show(next), () => {
  at("problem").textContent = "s3vm label is not running any more; all labels are saved.";
});
look();
setInterval(look, 2000);
