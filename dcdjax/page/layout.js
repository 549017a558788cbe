// Topics enter; places on a map leave, near each other for those that are alike.

const MAP = { width: 640, height: 460, filled: 0.35, gap: 1.2 };
const FRAME = 25; // milliseconds of layout between two frames
// The forces die away in so many steps; those of more topics take longer each.
const STEPS = { most: 300, least: 120, ofTopics: 60000 };

// A step of the layout at a time, so that the page answers while it settles; the same layout every time.
function settled(model, moved) {
  const area = MAP.width * MAP.height * MAP.filled;
  const radius = (weight) => Math.max(2.5, Math.sqrt((weight * area) / Math.PI));
  const nodes = Array.from(model.weights, (weight, topic) => ({ topic, r: radius(weight) }));
  const links = nodes.flatMap(({ topic }) =>
    model.like(topic).map(({ topic: other, likeness }) => ({ source: topic, target: other, likeness })),
  );
  const room = Math.sqrt(area / nodes.length);
  const attraction = d3
    .forceLink(links)
    .distance((one) => one.source.r + one.target.r + room * (1 - one.likeness))
    .strength((one) => 0.1 + 0.6 * one.likeness);
  const steps = Math.max(STEPS.least, Math.min(STEPS.most, STEPS.ofTopics / nodes.length));
  const simulation = d3
    .forceSimulation(nodes)
    .alphaDecay(1 - 0.001 ** (1 / steps))
    .force("link", attraction)
    .force("apart", d3.forceManyBody().strength((one) => -1.2 * one.r * one.r - 4).distanceMax(MAP.width / 2))
    .force("overlap", d3.forceCollide((one) => one.r + MAP.gap).iterations(2))
    .force("x", d3.forceX().strength(0.025))
    .force("y", d3.forceY().strength(0.035))
    .stop();
  const still = matchMedia("(prefers-reduced-motion: reduce)").matches;
  const on = () => {
    const until = performance.now() + FRAME;
    while (simulation.alpha() > simulation.alphaMin() && performance.now() < until) simulation.tick();
    const ended = simulation.alpha() <= simulation.alphaMin();
    if (ended || !still) moved(ended);
    if (!ended) setTimeout(on);
  };
  setTimeout(on);
  return nodes;
}

// The nearest topic in a direction, where what lies aside counts as farther.
function nextTopic(nodes, from, [dx, dy]) {
  return d3.least(
    nodes.filter((one) => (one.px - from.px) * dx + (one.py - from.py) * dy > 0.5),
    (one) => {
      const ahead = (one.px - from.px) * dx + (one.py - from.py) * dy;
      const aside = Math.abs((one.px - from.px) * dy) + Math.abs((one.py - from.py) * dx);
      return ahead + 2 * aside;
    },
  );
}
