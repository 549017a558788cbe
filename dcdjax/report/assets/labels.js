// Label the topics on the map, each with its telling words below each other. No two labels overlap.

// If circles and labels need more than the `crowded` share of the map, no room is made for them. With more topics than `sparse`, a
// label cannot avoid all circles.
const LABEL = { line: 13, most: 14, apart: 2, crowded: 0.8, smallest: 0.7, rounds: 500, sparse: 200 };

// Measure the labels of all topics in pixels.
function labelSizes(model, style) {
  const pen = document.createElement("canvas").getContext("2d");
  pen.font = `700 ${style.fontSize} ${style.fontFamily}`; // bold, as the labels that matter are
  return Array.from(model.weights.keys(), (topic) => {
    const words = model.labelOf(topic);
    const lines = (words.length ? words : [`${topic}`]).map(shortened);
    const half = Math.max(...lines.map((line) => pen.measureText(line).width)) / 2;
    return { topic, lines, half, tall: (lines.length * LABEL.line) / 2 };
  });
}

function shortened(word) {
  const letters = Array.from(word);
  return letters.length > LABEL.most ? `${letters.slice(0, LABEL.most - 1).join("")}…` : word;
}

// A label stands on its circle, or below a circle that is too small for it.
const homeOf = (r, tall) => (r < 0.7 * tall ? r + tall + 1 : 0);

// Move circles apart, in pixels, until no label at home would cover another label or circle. Circles shrink if they leave
// too little room. Returns the new places and the factor of all radii.
function madeRoom(places, sizes, { width, height }) {
  for (let factor = 1; factor > LABEL.smallest; factor *= 0.94) {
    const boxes = places.map((one, topic) => boxOf({ ...one, r: one.r * factor }, sizes[topic]));
    const needed = boxes.reduce((sum, { across, up, down }) => sum + 2 * across * (up + down), 0);
    if (needed > LABEL.crowded * width * height) continue;
    if (settled(boxes, { width, height })) return { moved: boxes, factor };
  }
  return { moved: places, factor: 1 }; // not all labels can be drawn anyway
}

// The room of a circle and its label. A label may cover the edge of a large circle.
function boxOf({ x, y, r }, { half, tall }) {
  const home = homeOf(r, tall);
  const [across, up, down] = [half, tall - home, tall + home].map((extent) => Math.max(0.8 * r, extent) + LABEL.apart);
  return { x, y, r, across, up, down };
}

function settled(boxes, { width, height }) {
  for (let round = 0; round < LABEL.rounds; round++) {
    let overlaps = false;
    for (let i = 1; i < boxes.length; i++) for (let j = 0; j < i; j++) overlaps = pushApart(boxes[i], boxes[j]) || overlaps;
    for (const one of boxes) {
      one.x = clamped(one.x, Math.max(one.across, one.r + 3), width);
      one.y = Math.min(Math.max(one.y, Math.max(one.up, one.r + 3)), height - Math.max(one.down, one.r + 3));
    }
    if (!overlaps) return true;
  }
  return false;
}

// Push two boxes and their circles apart, by most of what is missing.
function pushApart(one, other) {
  const [dx, dy] = [one.x - other.x, one.y - other.y];
  const missX = one.across + other.across - Math.abs(dx);
  const missY = (dy > 0 ? one.up + other.down : one.down + other.up) - Math.abs(dy);
  const far = Math.hypot(dx, dy) || 1e-3;
  const missR = one.r + other.r + 2 - far;
  let [pushX, pushY] = [0, 0];
  if (missX > 0 && missY > 0) {
    if (missX < missY) pushX = dx < 0 ? -missX : missX;
    else pushY = dy < 0 ? -missY : missY;
  } else if (missR > 0) [pushX, pushY] = [(missR * dx) / far, (missR * dy) / far];
  else return false;
  one.x += 0.4 * pushX;
  other.x -= 0.4 * pushX;
  one.y += 0.4 * pushY;
  other.y -= 0.4 * pushY;
  return Math.abs(pushX) + Math.abs(pushY) > 0.5;
}

// Choose the labels to draw, the most important topics first. A label that has no room on its circle can stand just below
// or above. It covers no other label, and no other circle so far that it would seem to name it.
function placeLabels(topics, { width, height }, circles, sizes) {
  const placed = [];
  const sparse = circles.length <= LABEL.sparse;
  for (const topic of topics) {
    const { x, y, r } = circles[topic];
    if (x < 0 || y < 0 || x > width || y > height) continue;
    const { half, tall } = sizes[topic];
    const beside = r + tall + 1;
    for (const down of new Set([homeOf(r, tall), beside, -beside])) {
      const own = { ...sizes[topic], x: clamped(x, half, width), y: clamped(y + down, tall, height) };
      if (placed.some((other) => overlap(own, other))) continue;
      if (sparse && circles.some((other, number) => number !== topic && covers(own, other))) continue;
      placed.push(own);
      break;
    }
  }
  return placed;
}

const clamped = (value, half, whole) => Math.min(Math.max(value, half + 1), Math.max(whole - half - 1, half + 1));

const overlap = (one, other) =>
  Math.abs(one.x - other.x) < one.half + other.half + LABEL.apart &&
  Math.abs(one.y - other.y) < one.tall + other.tall + LABEL.apart;

const covers = ({ x, y, half, tall }, circle) =>
  Math.abs(x - circle.x) < half + 0.3 * circle.r && Math.abs(y - circle.y) < tall + 0.3 * circle.r;

function drawLabels(group, placed, matters) {
  group
    .selectAll("g")
    .data(placed, (one) => one.topic)
    // Each word is a text of its own, so that its writing direction does not affect the others.
    .join((entering) =>
      entering.append("g").attr("data-label", (one) => one.topic).each(function ({ lines }) {
        const middle = (lines.length - 1) / 2;
        const named = d3.select(this).selectAll("text").data(lines).join("text");
        named.attr("y", (_, place) => (place - middle) * LABEL.line).text((line) => line);
      }),
    )
    .each(function ({ topic, x, y }) {
      // The browser draws again what is set again, even to the same value.
      const wanted = { class: matters(topic) ? "matters" : "", transform: `translate(${x},${y})` };
      for (const [name, value] of Object.entries(wanted)) if (this.getAttribute(name) !== value) this.setAttribute(name, value);
    });
}
