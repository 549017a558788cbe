// Draw the map of topics: area is weight, nearness is similarity, color is coherence.

const LABEL = { size: 12, letter: 7.2, most: 16, apart: 3 };
const ENLARGED = 1.8; // largest factor for circles when few topics are shown

// Draw the map. Returns functions to mark the chosen word and topic, and to redraw.
function topicMap(model, isShown, { toTopicHere }) {
  const box = byId("canvas");
  const svg = d3.create("svg").attr("role", "listbox").attr("aria-labelledby", "map-heading");
  const ground = svg.append("g");
  const color = coherenceColor(model);
  const map = {
    model,
    box,
    svg,
    ground,
    lines: ground.append("g").attr("class", "similarity"),
    tip: element("div", { class: "tip", hidden: "" }),
    view: d3.zoomIdentity,
    scale: 1, // from the layout's units to pixels
    enlarged: 1,
    topic: null,
    shares: new Map(), // P(topic | word) of the topics of the chosen word
    settled: false,
    radius: (one) => one.r * map.scale * map.enlarged,
    matters: (topic) => topic === map.topic || map.shares.has(topic),
    inSight: ({ topic }) => isShown(topic) || map.matters(topic),
  };
  map.nodes = layOut(model, (ended) => {
    map.settled = ended;
    place(map);
  });
  map.circles = ground
    .append("g")
    .selectAll("circle")
    .data(map.nodes)
    .join("circle")
    .attr("role", "option")
    .attr("aria-selected", "false")
    .attr("data-topic", (one) => one.topic)
    .attr("aria-label", (one) => described(model, one.topic))
    .attr("tabindex", -1)
    .attr("fill", (one) => color(one.topic));
  map.circle = map.circles.nodes(); // by topic
  map.labels = svg.append("g").attr("class", "labels").attr("aria-hidden", "true");
  box.append(svg.node(), map.tip);
  map.zoom = zoomable(map);
  listen(map, toTopicHere);
  for (const one of map.nodes) mark(map, one.topic);
  new ResizeObserver(() => place(map)).observe(box);
  mapNote(color);
  return {
    choose: (chosen) => markChosen(map, chosen),
    redraw: () => redraw(map),
  };
}

function described(model, topic) {
  const coherence = model.coherenceOf(topic);
  const npmi = coherence === null ? "" : `, coherence ${coherence.toFixed(2)}`;
  return `Topic ${topic}: ${model.nameOf(topic, 5).join(", ")}; weight ${percent(model.weights[topic])}${npmi}`;
}

// --- Drawing ---------------------------------------------------------------------------------------

// Scale the layout to pixels so that all of it is visible.
function place(map) {
  const { nodes, svg, box } = map;
  if (!box.clientWidth) return; // a closed notebook cell has no width
  const [width, height] = [box.clientWidth, Math.min(MAP.height, Math.max(300, box.clientWidth))];
  const edge = (sign, axis) => sign * d3.max(nodes, (one) => sign * one[axis] + one.r);
  const [left, right, top, bottom] = [edge(-1, "x"), edge(1, "x"), edge(-1, "y"), edge(1, "y")];
  // Stretch the layout up to 1.6 times along the longer side of the box, to use its space.
  const fit = [(width - 16) / (right - left), (height - 24) / (bottom - top)];
  map.scale = Math.min(...fit, 3);
  const [across, down] = fit.map((most) => Math.min(most, 1.6 * map.scale));
  svg.attr("viewBox", [0, 0, width, height]).attr("width", width).attr("height", height);
  for (const one of nodes) {
    one.px = width / 2 + (one.x - (left + right) / 2) * across;
    one.py = height / 2 - 4 + (one.y - (top + bottom) / 2) * down;
  }
  const all = [[0, 0], [width, height]];
  map.zoom.extent(all).translateExtent(all);
  if (width !== map.width) svg.call(map.zoom.transform, d3.zoomIdentity); // the old zoom would show another place
  map.width = width;
  map.circles.attr("cx", (one) => one.px).attr("cy", (one) => one.py).attr("r", map.radius);
  if (!map.settled) return; // lines and labels are drawn at the end
  redraw(map);
  svg.attr("data-settled", "");
}

// Draw again after the choice of shown topics has changed.
function redraw(map) {
  const shown = map.nodes.filter((one) => map.inSight(one)).length;
  // Circles grow into the space of the topics that are hidden.
  map.enlarged = Math.min(ENLARGED, Math.sqrt(map.nodes.length / shown));
  map.circles.attr("r", map.radius);
  for (const one of map.nodes) mark(map, one.topic);
  if (!map.inSight({ topic: map.focused })) focusable(map, map.topic);
  drawLines(map);
  label(map);
}

function markChosen(map, { word, topic }) {
  const before = [map.topic, ...map.shares.keys()].filter((one) => one !== null);
  map.topic = topic;
  map.shares = new Map(map.model.topicsOf(word).map((one) => [one.topic, one.probability]));
  focusable(map, topic);
  for (const one of new Set([...before, topic, ...map.shares.keys()])) mark(map, one);
  if (!map.settled) return;
  drawLines(map);
  label(map);
}

function mark(map, topic) {
  const circle = map.circle[topic];
  circle.toggleAttribute("hidden", !map.inSight({ topic }));
  circle.setAttribute("aria-selected", String(topic === map.topic));
  circle.classList.toggle("chosen", topic === map.topic);
  circle.classList.toggle("of-word", map.shares.has(topic));
}

// Draw lines from the chosen topic to the topics most similar to it.
function drawLines(map) {
  const from = map.nodes[map.topic];
  const similar = from ? map.model.similarTopics(map.topic).filter((one) => map.inSight(one)) : [];
  map.lines
    .selectAll("line")
    .data(similar)
    .join("line")
    .attr("x1", () => from.px)
    .attr("y1", () => from.py)
    .attr("x2", (one) => map.nodes[one.topic].px)
    .attr("y2", (one) => map.nodes[one.topic].py)
    .attr("stroke-opacity", (one) => 0.25 + 0.75 * one.similarity);
}

// Label as many topics as fit with their first word, the most important topics first.
function label(map) {
  const { model, view } = map;
  const rank = ({ topic }) =>
    (topic === map.topic ? 9 : 0) +
    (map.shares.has(topic) ? 4 + map.shares.get(topic) : 0) +
    (model.coherenceOf(topic) ?? model.weights[topic]);
  const { width, height } = map.svg.node().viewBox.baseVal;
  const shown = [];
  for (const one of d3.sort(map.nodes.filter(map.inSight), (one) => -rank(one))) {
    const [x, y] = view.apply([one.px, one.py]);
    if (x < 0 || y < 0 || x > width || y > height) continue;
    const [word = ""] = model.nameOf(one.topic, 1);
    const letters = Array.from(word);
    const text = letters.length > LABEL.most ? `${letters.slice(0, LABEL.most).join("")}…` : word;
    const half = (Math.min(letters.length, LABEL.most + 1) * LABEL.letter) / 2;
    const middle = Math.min(Math.max(x, half), width - half);
    // The label is inside its circle if it fits, otherwise below.
    const r = map.radius(one) * view.k;
    const line = r > half ? y : y + r + LABEL.size / 2;
    const own = { topic: one.topic, text, x: middle, y: line, half };
    if (!shown.some((other) => overlap(own, other))) shown.push(own);
  }
  map.labels
    .selectAll("text")
    .data(shown, (one) => one.topic)
    .join("text")
    .attr("x", (one) => one.x)
    .attr("y", (one) => one.y)
    .attr("class", (one) => (map.matters(one.topic) ? "matters" : null))
    .text((one) => one.text);
}

const overlap = (one, other) =>
  Math.abs(one.x - other.x) < one.half + other.half + LABEL.apart && Math.abs(one.y - other.y) < LABEL.size;

// --- Mouse and keyboard -------------------------------------------------------------------------------------

// One finger scrolls the page, two fingers move the map. A wheel zooms only with Ctrl; a pinch zooms too.
function zoomable(map) {
  const { svg } = map;
  const zoom = d3
    .zoom()
    .scaleExtent([1, 12])
    .clickDistance(4) // a small movement still counts as a click
    .filter((event) => {
      if (event.type === "wheel") return event.ctrlKey;
      return event.touches ? event.touches.length > 1 : !event.button;
    })
    .on("zoom", ({ transform }) => {
      map.view = transform;
      map.ground.attr("transform", transform);
      label(map);
    });
  svg.call(zoom).on("dblclick.zoom", null);
  byId("zoom-in").addEventListener("click", () => svg.call(zoom.scaleBy, 1.6));
  byId("zoom-out").addEventListener("click", () => svg.call(zoom.scaleBy, 1 / 1.6));
  byId("zoom-all").addEventListener("click", () => svg.call(zoom.transform, d3.zoomIdentity));
  return zoom;
}

// The Tab key reaches one topic of the map; arrow keys move on from there.
function focusable(map, topic) {
  map.circle[map.focused]?.setAttribute("tabindex", -1);
  map.circle[topic].setAttribute("tabindex", 0);
  map.focused = topic;
}

function bringIntoView(map, { px, py }) {
  const { width, height } = map.svg.node().viewBox.baseVal;
  const [x, y] = map.view.apply([px, py]);
  if (x < 0 || y < 0 || x > width || y > height) map.svg.call(map.zoom.translateTo, px, py);
}

function listen(map, toTopic) {
  const { tip, box } = map;
  const tell = (one) => {
    const [x, y] = map.view.apply([one.px, one.py]);
    tip.textContent = described(map.model, one.topic);
    tip.hidden = false;
    tip.style.left = `${Math.max(0, Math.min(x - 110, box.clientWidth - 220))}px`;
    const below = y + map.radius(one) * map.view.k + 6;
    const fits = below + tip.offsetHeight <= box.clientHeight;
    const above = y - map.radius(one) * map.view.k - 6 - tip.offsetHeight;
    tip.style.top = `${fits ? below : Math.max(0, above)}px`;
  };
  const silence = () => (tip.hidden = true);
  const directions = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };
  map.circles
    .on("click", (event, one) => toTopic(one.topic))
    .on("pointerenter focus", (event, one) => tell(one))
    .on("pointerleave blur", silence)
    .on("keydown", (event, one) => {
      if (event.key === "Enter" || event.key === " ") toTopic(one.topic);
      else if (event.key === "Escape") silence();
      else if (event.key in directions) {
        const next = nextTopic(map.nodes.filter(map.inSight), one, directions[event.key]);
        if (next) {
          focusable(map, next.topic);
          bringIntoView(map, next);
          map.circle[next.topic].focus({ preventScroll: true });
        }
      } else return;
      event.preventDefault();
    });
}

// --- Colors ----------------------------------------------------------------------------------------

function coherenceColor(model) {
  const known = (model.coherence ?? []).filter((value) => value !== null);
  if (!known.length) return Object.assign(() => d3.interpolateCividis(0.4), { range: null });
  const sorted = d3.sort(known);
  // Without the outer 5 percent, a few extreme topics would leave one color for all others.
  const [low, high] = [d3.quantileSorted(sorted, 0.05), d3.quantileSorted(sorted, 0.95)];
  const scale = d3.scaleSequential([low, Math.max(high, low + 1e-6)], d3.interpolateCividis).clamp(true);
  return Object.assign((topic) => scale(model.coherenceOf(topic) ?? low), { range: [low, high] });
}

function mapNote({ range }) {
  const colored = range ? " Brighter topics have more coherent words." : "";
  byId("map-note").textContent =
    `A larger circle is a topic of more words. Topics with similar words are near each other.${colored} ` +
    "Click a topic, or use the arrow keys and Enter. Zoom with two fingers, or with Ctrl and the wheel.";
  if (!range) return;
  const ramp = element("span", { class: "ramp", "aria-hidden": "true" });
  for (let step = 0; step < 24; step++) {
    const cell = element("span");
    cell.style.background = d3.interpolateCividis(step / 23);
    ramp.append(cell);
  }
  byId("legend").replaceChildren(`coherence ${range[0].toFixed(2)} `, ramp, ` ${range[1].toFixed(2)}`);
}
