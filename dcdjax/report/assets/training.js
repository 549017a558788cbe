// Show the training curve and the record of the embedding.

// The colors of Okabe and Ito, which color-blind people can tell apart, without yellow, which is hard to see on white.
const LINE_KINDS = 7;

function showTraining(model) {
  const curves = model.curves.map((curve, start) => ({ curve, start })).filter(({ curve }) => curve.length > 1);
  if (curves.length) drawCurves(model, curves);
  const facts = recordRows(model);
  byId("facts").replaceChildren(
    ...facts.flatMap(([name, value]) => [element("dt", {}, name), element("dd", {}, bdi(value))]),
  );
  byId("record").textContent = JSON.stringify(model.record, null, 2);
}

function recordRows({ record, diversity }) {
  const { corpus, S, settings, versions } = record;
  const listed = (values) => [values ?? []].flat().map(String).join(", ").replaceAll("_", " ");
  const made = [record.status && counted(record.status.length, "start"), settings?.start, settings?.combine];
  const facts = [
    ["corpus", corpus?.name],
    ["tokens", corpus?.num_tokens && whole(corpus.num_tokens)],
    ["SHA-256 of it", corpus?.sha256],
    ["pairs in S", S?.num_nonzeros && whole(S.num_nonzeros)],
    ["window", settings?.counting?.window],
    ["weighting", record.weighting?.weighting],
    ["topics of a start", listed(settings?.num_topics)],
    ["diversity of the topics", diversity.toFixed(2)],
    ["made of", listed(made.filter((one) => one !== undefined && one !== null))],
    ["the best", settings?.combine === "best" && record.used ? `start ${record.used[0] + 1}` : null],
    ["step", settings?.step],
    ["steps", listed(record.num_steps)],
    ["status", listed([...new Set(record.status)])],
    ["seed", record.seed],
    ["seconds", record.seconds],
    ["made", record.created],
    ["by", versions && Object.entries(versions).map(([name, version]) => `${name} ${version}`).join(", ")],
  ];
  return facts.filter(([, value]) => ![undefined, null, ""].includes(value)).map(([name, value]) => [name, `${value}`]);
}

// Starts keep the number they had while fitting; the embedding may use only some of them.
const startName = (model, start) => `start ${model.used[start] + 1}, ${counted(model.starts[start], "topic")}`;

// Name a start by its number, and by its number of topics if the embedding uses it.
function curveName(model, start) {
  const place = model.used.indexOf(start);
  return place >= 0 && model.curves.length >= model.starts.length ? startName(model, place) : `start ${start + 1}`;
}

function drawCurves(model, curves) {
  const box = byId("chart");
  const short = d3.format(".4s");
  const descriptions = curves.map(({ curve, start }) => {
    const [[, from], [last, to]] = [curve[0], curve.at(-1)];
    return `${curveName(model, start)}: from ${short(from)} to ${short(to)} in ${counted(last, "step")}`;
  });
  byId("curves").hidden = false;
  byId("curves-caption").textContent = "The error that learning makes smaller, after each step (the objective −Σ S log Ŝ).";
  const draw = () => box.replaceChildren(chart(curves, box.clientWidth, descriptions.join("; ")));
  draw(); // the observer waits until the section is in sight
  new ResizeObserver(draw).observe(box);
  if (curves.length > 1 && curves.length <= LINE_KINDS) {
    const keys = curves.map(({ start }, place) => {
      const key = element("span", { class: `key line-${place}`, "aria-hidden": "true" });
      return element("li", {}, key, curveName(model, start));
    });
    byId("chart-legend").replaceChildren(...keys);
  }
}

function chart(curves, available, described) {
  const [width, height] = [Math.max(260, Math.min(720, available)), 260];
  const points = curves.flatMap(({ curve }) => curve);
  const last = d3.max(points, ([step]) => step);
  const range = d3.extent(points, ([, objective]) => objective);
  // The name of the upright axis is above it, and the numbers have as much space as the longest needs.
  const y = d3.scaleLinear(range, [0, 1]).nice();
  const longest = Math.max(...y.ticks(5).map((value) => y.tickFormat(5, "~s")(value).length));
  const edge = { top: 30, right: 16, bottom: 44, left: 20 + 8 * longest };
  y.range([height - edge.bottom, edge.top]);
  const x = d3.scaleLinear([0, last], [edge.left, width - edge.right]);
  const svg = d3.create("svg").attr("viewBox", [0, 0, width, height]).attr("width", width).attr("height", height);
  svg.attr("role", "img").attr("aria-label", described);
  const axis = (drawn, place) => svg.append("g").attr("class", "axis").attr("transform", place).call(drawn);
  axis(d3.axisBottom(x).ticks(Math.min(last, width / 60), "d"), `translate(0,${height - edge.bottom})`);
  axis(d3.axisLeft(y).ticks(5, "~s"), `translate(${edge.left},0)`);
  const name = (text, left, top, anchor) =>
    svg.append("text").attr("class", "axis-label").attr("x", left).attr("y", top).attr("text-anchor", anchor).text(text);
  name("step", (width + edge.left) / 2, height - 6, "middle");
  name("objective", 4, 14, "start");
  const line = d3.line(([step]) => x(step), ([, objective]) => y(objective));
  curves.forEach(({ curve }, place) => {
    svg.append("path").attr("class", `curve line-${place % LINE_KINDS}`).attr("d", line(curve));
  });
  return svg.node();
}
