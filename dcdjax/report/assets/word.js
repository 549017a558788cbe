// Show a word: its neighbors, the topics that explain them, and its own topics.

const PATH_KINDS = ["first", "second", "third"];

// Shares below this are not told: a map full of marks says nothing.
const SMALL_SHARE = 0.005;

// Name a topic by its number and telling words.
function topicName(model, topic) {
  const named = element("span", { class: "topic-name" }, element("b", {}, `${topic}`));
  for (const word of model.labelOf(topic)) named.append(" ", bdi(word));
  if (model.isJunk(topic)) named.append(" ", junkTag(model));
  return named;
}

const topicLink = (model, topic, toTopic) => link(`#topic=${topic}`, () => toTopic(topic), topicName(model, topic));

const junkReason = (model) =>
  `the words hardly ever stand in the same passage (coherence below ${signed(model.junk_coherence)})`;
const junkTag = (model) => element("span", { class: "tag", title: `Junk: ${junkReason(model)}` }, "junk");

// Make a link to a word. Words that only name topics have no link.
function wordLink(model, number, toWord) {
  const word = model.words[number];
  return number < model.shownWords.length ? link(`#word=${address(word)}`, () => toWord(number), bdi(word)) : bdi(word);
}

function showWord(model, number, { toWord, toTopic }) {
  const word = model.words[number];
  byId("word-heading").replaceChildren(bdi(word));
  const count = model.count(number);
  byId("word-note").textContent = count === undefined ? "" : `${counted(count, "time")} in the corpus`;

  const near = model.neighbors(number);
  const largest = near[0]?.probability || 1;
  const rows = near.map((one, rank) => neighborRow(model, one, rank, largest, toWord, toTopic));
  byId("neighbors").replaceChildren(...rows);
  // Explain the first neighbor at once, to show what the buttons do.
  rows[0]?.querySelector("button").click();

  const own = model.topicsOf(number).filter(({ probability: share }) => share >= SMALL_SHARE);
  byId("word-topics").replaceChildren(
    ...own.map(({ topic, probability: share }) => barRow(topicLink(model, topic, toTopic), percent(share), share)),
  );
}

function neighborRow(model, { number, probability: value, paths }, rank, largest, toWord, toTopic) {
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
        if (!why.hasChildNodes()) why.append(...pathRows(model, value, paths, rest, toTopic));
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

// Shares are stored with two digits only.
function pathRows(model, value, paths, rest, toTopic) {
  if (value === 0) return [element("p", {}, "They have no topic in common.")];
  const line = (kind, through, share) =>
    element(
      "p",
      {},
      element("span", { class: `key ${kind}`, "aria-hidden": "true" }),
      element("span", {}, through),
      element("span", { class: "number" }, percent(share)),
    );
  const rows = paths.map(({ topic, share }, place) => line(PATH_KINDS[place], topicLink(model, topic, toTopic), share));
  if (rest >= 0.01) rows.push(line("rest", "other topics", rest));
  return rows;
}

// An address cannot hold a lone surrogate, which broken text can have.
function address(word) {
  return encodeURIComponent(word.isWellFormed?.() === false ? word.toWellFormed() : word);
}
