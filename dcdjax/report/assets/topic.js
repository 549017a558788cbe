// Show a topic, its words and similar topics; and a table of all topics that can be sorted.

const FIRST_ROWS = 20;

function showTopic(model, topic, { toWord, toTopic }) {
  byId("topic-heading").replaceChildren(`Topic ${topic}`);
  const coherence = model.coherenceOf(topic);
  const facts = [`weight ${percent(model.weights[topic])}`];
  if (coherence !== null) facts.push(`coherence (NPMI) ${coherence.toFixed(2)}`);
  if (model.starts.length > 1) facts.push(`of ${startName(model, model.startOf[topic])}`);
  byId("topic-note").textContent = `${facts.join(", ")}. Its words, with P(word | topic):`;

  const words = model.wordsOf(topic);
  const largest = words[0]?.probability || 1;
  byId("topic-words").replaceChildren(
    ...words.map(({ number, probability: value }) =>
      barRow(wordLink(model, number, toWord), probability(value), value / largest),
    ),
  );
  const similar = model.similarTopics(topic);
  byId("like").hidden = !similar.length;
  byId("like-topics").replaceChildren(
    ...similar.map(({ topic: other, similarity }) =>
      barRow(topicLink(model, other, 4, toTopic), similarity.toFixed(2), similarity),
    ),
  );
}

// Starts keep the number they had while fitting; the embedding may use only some of them.
const startName = (model, start) => `start ${model.used[start] + 1}, ${counted(model.starts[start], "topic")}`;

// The starts of a consensus find nearly the same topics, so the page shows one start at a time, or all.
function startChooser(model, changed) {
  const select = byId("start");
  model.starts.forEach((_, start) => select.append(element("option", { value: start }, startName(model, start))));
  select.append(element("option", { value: -1 }, "all starts"));
  byId("of-start").hidden = model.starts.length < 2;
  select.addEventListener("change", changed);
  return (topic) => select.value === "-1" || model.startOf[topic] === Number(select.value);
}

// Make the table. Returns functions to mark the row of a topic, and to fill the table again.
function topicTable(model, isShown, { toTopic }) {
  const section = byId("topics");
  const [head, body] = [section.querySelector("thead"), section.querySelector("tbody")];
  const more = byId("more");
  const known = model.coherence !== null;
  const columns = [
    { name: "topic", value: (topic) => -topic },
    { name: "weight", value: (topic) => model.weights[topic] },
    ...(known ? [{ name: "NPMI", value: (topic) => model.coherenceOf(topic) ?? -Infinity }] : []),
  ];
  let sorted = columns.at(-1);
  let all = false;
  let marked = null;

  const rowOf = (topic) =>
    element(
      "tr",
      { "data-topic": topic, class: topic === marked ? "chosen" : null },
      element("td", { class: "number" }, link(`#topic=${topic}`, () => toTopic(topic), `${topic}`)),
      element("td", { class: "number" }, percent(model.weights[topic])),
      known ? element("td", { class: "number" }, model.coherenceOf(topic)?.toFixed(2) ?? "") : null,
      element("td", {}, ...model.nameOf(topic, 10).flatMap((word) => [bdi(word), " "])),
    );
  const fill = () => {
    const topics = Array.from(model.weights.keys()).filter(isShown);
    const ofOne = topics.length < model.numTopics;
    const which = ofOne ? ` of ${startName(model, model.startOf[topics[0]])}` : "";
    byId("topics-heading").textContent = `All topics${which}`;
    topics.sort((one, other) => sorted.value(other) - sorted.value(one) || one - other);
    const shown = all ? topics : topics.slice(0, FIRST_ROWS);
    body.replaceChildren(...shown.map(rowOf));
    more.hidden = shown.length === topics.length;
    more.textContent = `Show all ${whole(topics.length)} topics`;
    for (const [place, cell] of Array.from(head.querySelectorAll("th[data-column]")).entries()) {
      const here = columns[place] === sorted;
      cell.setAttribute("aria-sort", here ? (place ? "descending" : "ascending") : "none");
    }
  };
  const headings = columns.map((column) => {
    const chosen = () => {
      sorted = column;
      fill();
    };
    return element(
      "th",
      { scope: "col", "data-column": column.name },
      element("button", { type: "button", click: chosen }, column.name),
    );
  });
  head.append(element("tr", {}, ...headings, element("th", { scope: "col" }, "words")));
  more.addEventListener("click", () => {
    all = true;
    fill();
    body.children[FIRST_ROWS].querySelector("a").focus();
  });
  fill();
  return {
    choose: (topic) => {
      marked = topic;
      for (const row of body.children) row.className = Number(row.dataset.topic) === topic ? "chosen" : "";
    },
    redraw: fill,
  };
}
