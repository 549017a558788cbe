// Draw the map of topics: area is the share of the text, nearness is similarity, color is coherence.

const LARGE_SHARE = 0.05; // the map marks the topics with so much of the chosen word

// Draw the map. Returns a function to mark the chosen word and topic.
function topicMap(model, { toTopicHere }) {
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
    waiting: element("p", { class: "note waiting" }, "Arranging the topics …"),
    view: d3.zoomIdentity,
    scale: 1, // from the layout's units to pixels
    topic: null,
    shares: new Map(), // P(topic | word) of the main topics of the chosen word
    settled: false,
    // Zooming in makes more room between the topics: they grow by the root of it only.
    radius: (one) => (one.r * map.scale) / Math.sqrt(map.view.k),
    matters: (topic) => topic === map.topic || map.shares.has(topic),
  };
  map.nodes = layOut(model, () => {
    map.settled = true;
    map.waiting.remove();
    box.append(svg.node(), map.tip);
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
    .classed("junk", (one) => model.isJunk(one.topic))
    .style("--coherence", (one) => `${color.percent(one.topic)}%`);
  map.circle = map.circles.nodes(); // by topic
  map.labels = svg.append("g").attr("class", "labels").attr("aria-hidden", "true");
  box.append(map.waiting);
  map.zoom = zoomable(map);
  listen(map, toTopicHere);
  new ResizeObserver(() => place(map)).observe(box);
  legend(color);
  return (chosen) => markChosen(map, chosen);
}

function described(model, topic) {
  const coherence = model.coherenceOf(topic);
  const facts = [`${percent(model.weights[topic])} ${model.whole}`];
  if (coherence !== null) facts.push(`coherence ${signed(coherence)}`);
  if (model.isJunk(topic)) facts.push("junk");
  return `Topic ${topic}: ${model.firstWords(topic, 6).join(", ")} (${facts.join(", ")})`;
}

// --- Drawing ---------------------------------------------------------------------------------------

// Scale the layout to pixels so that all of it is visible.
function place(map) {
  const { nodes, svg, box } = map;
  if (!map.settled || !box.clientWidth) return; // a closed notebook cell has no width
  const width = box.clientWidth;
  const height = Math.round(Math.min(MAP.tallest, Math.max(MAP.lowest, 1.15 * width)));
  const edge = (sign, axis) => sign * d3.max(nodes, (one) => sign * one[axis] + one.r);
  const [left, right, top, bottom] = [edge(-1, "x"), edge(1, "x"), edge(-1, "y"), edge(1, "y")];
  // Stretch the layout up to 1.6 times along the longer side of the box, to use its space.
  const fit = [(width - 24) / (right - left), (height - 24) / (bottom - top)];
  map.scale = Math.min(...fit, 3);
  const [across, down] = fit.map((most) => Math.min(most, 1.6 * map.scale));
  svg.attr("viewBox", [0, 0, width, height]).attr("width", width).attr("height", height);
  const places = nodes.map((one) => ({
    x: width / 2 + (one.x - (left + right) / 2) * across,
    y: height / 2 + (one.y - (top + bottom) / 2) * down,
    r: one.r * map.scale,
  }));
  map.labelSizes ??= labelSizes(map.model, getComputedStyle(map.labels.node()));
  const { moved, factor } = madeRoom(places, map.labelSizes, { width, height });
  map.scale *= factor;
  for (const [topic, { x, y }] of moved.entries()) Object.assign(nodes[topic], { px: x, py: y });
  const all = [[0, 0], [width, height]];
  map.zoom.extent(all).translateExtent(all);
  if (width !== map.width) svg.call(map.zoom.transform, d3.zoomIdentity); // the old zoom would show another place
  map.width = width;
  map.circles.attr("cx", (one) => one.px).attr("cy", (one) => one.py).attr("r", map.radius);
  drawLines(map);
  label(map);
  svg.attr("data-settled", "");
}

function markChosen(map, { word, topic }) {
  const before = [map.topic, ...map.shares.keys()].filter((one) => one !== null);
  const own = map.model.topicsOf(word).filter((one) => one.probability >= LARGE_SHARE);
  map.topic = topic;
  map.shares = new Map(own.map((one) => [one.topic, one.probability]));
  byId("legend-word").replaceChildren(bdi(map.model.words[word]));
  focusable(map, topic);
  for (const one of new Set([...before, topic, ...map.shares.keys()])) mark(map, one);
  if (!map.settled) return;
  drawLines(map);
  label(map);
}

function mark(map, topic) {
  const circle = map.circle[topic];
  circle.setAttribute("aria-selected", String(topic === map.topic));
  circle.classList.toggle("chosen", topic === map.topic);
  circle.classList.toggle("of-word", map.shares.has(topic));
}

// Draw lines from the chosen topic to the topics most similar to it.
function drawLines(map) {
  const from = map.nodes[map.topic];
  map.lines
    .selectAll("line")
    .data(map.model.similarTopics(map.topic))
    .join("line")
    .attr("x1", () => from.px)
    .attr("y1", () => from.py)
    .attr("x2", (one) => map.nodes[one.topic].px)
    .attr("y2", (one) => map.nodes[one.topic].py)
    .attr("stroke-opacity", (one) => 0.25 + 0.75 * one.similarity);
}

// Label as many topics as fit: first the chosen one, then those of the word, then the others in their useful order.
function label(map) {
  if (!map.settled) return;
  const { model, view } = map;
  map.order ??= usefulOrder(model);
  const circles = map.nodes.map((one) => {
    const [x, y] = view.apply([one.px, one.py]);
    return { x, y, r: map.radius(one) * view.k };
  });
  const topics = new Set([map.topic, ...map.shares.keys(), ...map.order]);
  const placed = placeLabels(topics, map.svg.node().viewBox.baseVal, circles, map.labelSizes);
  drawLabels(map.labels, placed, map.matters);
}

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
      map.circles.attr("r", map.radius);
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
    .on("pointerenter", (event, one) => tell(one))
    .on("focus", (event, one) => {
      if (event.target.matches(":focus-visible")) bringIntoView(map, one);
      tell(one);
    })
    .on("pointerleave blur", silence)
    .on("keydown", (event, one) => {
      if (event.key === "Enter" || event.key === " ") toTopic(one.topic);
      else if (event.key === "Escape") silence();
      else if (event.key in directions) {
        const next = nextTopic(map.nodes, one, directions[event.key]);
        if (next) {
          focusable(map, next.topic);
          map.circle[next.topic].focus({ preventScroll: true });
        }
      } else return;
      event.preventDefault();
    });
}

// --- Colors ----------------------------------------------------------------------------------------

// The style sheet mixes two colors, so that a label is easy to read on any topic, on a light or a dark page.
function coherenceColor(model) {
  const known = (model.coherence ?? []).filter((value) => value !== null);
  if (!known.length) return { percent: () => 60, range: null };
  const sorted = d3.sort(known);
  // Without the outer 5 percent, a few extreme topics would leave one color for all others.
  const [low, high] = [d3.quantileSorted(sorted, 0.05), d3.quantileSorted(sorted, 0.95)];
  const scale = d3.scaleLinear([low, Math.max(high, low + 1e-6)], [0, 100]).clamp(true);
  return { percent: (topic) => Math.round(scale(model.coherenceOf(topic) ?? low)), range: [low, high] };
}

function legend({ range }) {
  byId("legend-coherence").hidden = !range;
  if (!range) return;
  const [low, high] = range.map(signed);
  byId("ramp").before(`${low} `);
  byId("ramp").after(` ${high}`);
}
