// A word enters; its neighbors, the topics by which they are reached, and its own topics are shown.

const PATH_KINDS = ["first", "second", "third"];

// A topic by its number and first words, which leads to it.
function topicLink(model, topic, most, toTopic) {
  const named = element("span", { class: "topic-name" }, element("b", {}, `${topic}`));
  for (const word of model.nameOf(topic, most)) named.append(" ", bdi(word));
  return link(`#topic=${topic}`, () => toTopic(topic), named);
}

// A word that leads to what is told of it.
function wordLink(model, number, toWord) {
  const word = model.words[number];
  return number < model.told.length ? link(`#word=${address(word)}`, () => toWord(number), bdi(word)) : bdi(word);
}

function showWord(model, number, { toWord, toTopic }) {
  const word = model.words[number];
  byId("word-heading").replaceChildren(bdi(word));
  const count = model.count(number);
  byId("word-note").textContent = count === undefined ? "" : `${counted(count, "time")} in the corpus`;

  const near = model.neighbors(number);
  const largest = near[0]?.probability || 1;
  const rows = near.map((one, rank) => neighborRow(model, word, one, rank, largest, toWord, toTopic));
  byId("neighbors").replaceChildren(...rows);
  // The first is told in full, to show what can be asked for.
  rows[0]?.querySelector("button").click();

  const own = model.topicsOf(number);
  const most = own[0]?.probability || 1;
  byId("word-topics").replaceChildren(
    ...own.map(({ topic, probability: share }) =>
      barRow(topicLink(model, topic, 4, toTopic), percent(share), share / most),
    ),
  );
}

function neighborRow(model, word, { number, probability: value, paths }, rank, largest, toWord, toTopic) {
  const neighbor = model.words[number];
  const shares = paths.map(({ share }, place) => [PATH_KINDS[place], (share * value) / largest]);
  const rest = Math.max(0, 1 - paths.reduce((sum, { share }) => sum + share, 0));
  const why = element("div", { class: "why", id: `why-${rank}`, hidden: "" });
  const toggle = element(
    "button",
    {
      type: "button",
      "aria-expanded": "false",
      "aria-controls": why.id,
      "aria-label": `Why ${neighbor}?`,
      click: () => {
        why.hidden = !why.hidden;
        toggle.setAttribute("aria-expanded", String(!why.hidden));
        if (!why.hasChildNodes()) why.append(...pathRows(model, word, neighbor, value, paths, rest, toTopic));
      },
    },
    "why?",
  );
  return element(
    "li",
    {},
    wordLink(model, number, toWord),
    element("span", { class: "number" }, probability(value)),
    toggle,
    bar(...shares, ["rest", (rest * value) / largest]),
    why,
  );
}

// Each path has two digits: more are not told.
function pathRows(model, word, neighbor, value, paths, rest, toTopic) {
  if (value === 0) return [element("p", {}, "They have no topic in common.")];
  const line = (kind, middle, share) =>
    element(
      "p",
      {},
      element("span", { class: `key ${kind}`, "aria-hidden": "true" }),
      element("span", {}, bdi(word), " → ", middle, " → ", bdi(neighbor)),
      element("span", { class: "number" }, `${(share * value).toPrecision(2)} (${percent(share)})`),
    );
  const rows = paths.map(({ topic, share }, place) =>
    line(PATH_KINDS[place], topicLink(model, topic, 3, toTopic), share),
  );
  if (rest >= 0.01) rows.push(line("rest", "other topics", rest));
  return rows;
}

// Half a character, as broken text has them, cannot stand in an address.
function address(word) {
  return encodeURIComponent(word.isWellFormed?.() === false ? word.toWellFormed() : word);
}
