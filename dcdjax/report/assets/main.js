// Start the page, and show the chosen word and topic in all its parts.

async function begin() {
  const model = modelOf(await unpacked(byId("data").textContent));
  const page = {
    model,
    numberOf: new Map(model.shownWords.map((word, number) => [word, number])),
    chosen: { word: model.first_word, topic: 0 },
  };
  byId("size").textContent = sizes(model);
  byId("legend-size").textContent = `Larger: a larger share ${model.whole}`;
  document.querySelector("main").hidden = false;
  const go = {
    toWord: (number) => choose(page, { word: number, topic: model.topicsOf(number)[0].topic }, "word"),
    toTopic: (topic) => choose(page, { topic }, "topic"),
    // A choice on the map keeps the focus on the map.
    toTopicHere: (topic) => choose(page, { topic }, null),
  };
  page.go = go;
  page.noteWord = search(model, page.numberOf, go, (...asked) => sayUnknown(page, ...asked));
  page.map = topicMap(model, go);
  page.table = topicTable(model, go);
  page.steps = topicSteps(model, go);
  showTraining(model);
  for (const skip of document.querySelectorAll("#skip a")) {
    skip.addEventListener("click", (event) => {
      event.preventDefault();
      reveal(skip.hash.slice(1));
    });
  }
  addEventListener("popstate", () => read(page));
  read(page);
}

function sizes({ shownWords, num_words: numWords, numTopics, subtopics, count }) {
  const which = count(0) === undefined ? "first" : "most frequent";
  const some = shownWords.length < numWords ? `the ${whole(shownWords.length)} ${which} of ` : "";
  const parts = subtopics ? `, ${whole(subtopics.flat().length)} subtopics` : "";
  return `${some}${counted(numWords, "word")}, ${counted(numTopics, "topic")}${parts}`;
}

function choose(page, change, place) {
  const { model, chosen } = page;
  const same = Object.entries(change).every(([name, value]) => chosen[name] === value);
  Object.assign(chosen, change);
  show(page);
  const { word, topic } = chosen;
  if ("word" in change) {
    say(`${counted(model.neighbors(word).length, "neighbor")} of ${model.words[word]}`);
    if (!same) remember(page, "pushState", `#word=${address(model.words[word])}`);
  } else {
    say(`Topic ${topic}: ${model.firstWords(topic, 5).join(", ")}`);
    if (!same) remember(page, "pushState", `#topic=${topic}`);
  }
  if (place) reveal(place);
}

function show({ model, chosen, go, noteWord, map, table, steps }) {
  byId("unknown").replaceChildren();
  document.title = `${model.words[chosen.word]} · ${model.title}`;
  showWord(model, chosen.word, go);
  showTopic(model, chosen.topic, go);
  noteWord(chosen.word);
  map(chosen);
  table(chosen.topic);
  steps(chosen.topic);
}

const say = (text) => (byId("status").textContent = text);

// Move the focus to the answer, for screen readers and phones. scrollBy scrolls only this page; scrollIntoView would
// also scroll the notebook around it.
function reveal(name) {
  const heading = byId(`${name}-heading`);
  heading.focus({ preventScroll: true });
  const covered = document.querySelector("header").getBoundingClientRect().bottom;
  const { top, bottom } = heading.getBoundingClientRect();
  if (top < covered || bottom > innerHeight) scrollBy(0, top - covered - 16);
}

function sayUnknown({ model, go }, typed, similar, topics) {
  const links = similar.flatMap((number) => [" ", wordLink(model, number, go.toWord)]);
  const named = topics.flatMap((topic) => [" ", topicLink(model, topic, go.toTopic)]);
  byId("unknown").replaceChildren(
    bdi(typed),
    ` is not among the ${counted(model.shownWords.length, "word")}.`,
    ...(links.length ? [" Similar:", ...links] : []),
    ...(named.length ? [" Topics:", ...named] : []),
  );
}

// --- Addresses -------------------------------------------------------------------------------------

// The history stores the word, not its number: a new page in the same file can have other numbers.
function remember({ model, chosen }, how, place) {
  if (INSIDE) return;
  try {
    history[how]({ word: model.words[chosen.word], topic: chosen.topic }, "", place);
  } catch {
    // Browsers refuse too many changes of the history. The page itself has changed already.
  }
}

// Show the word or topic of the history or the address, if this page has it.
function read(page) {
  const { model, chosen, numberOf } = page;
  const { word, topic } = INSIDE ? {} : (history.state ?? {});
  const [kind, name] = decodedAddress(location.hash);
  const isTopic = (number) => Number.isInteger(number) && number >= 0 && number < model.numTopics;
  if (numberOf.has(word) && isTopic(topic)) Object.assign(chosen, { word: numberOf.get(word), topic });
  else if (kind === "topic" && /^\d+$/.test(name) && isTopic(Number(name))) chosen.topic = Number(name);
  else {
    const known = kind === "word" && numberOf.has(name);
    chosen.word = known ? numberOf.get(name) : model.first_word;
    chosen.topic = known ? model.topicsOf(chosen.word)[0].topic : 0;
  }
  show(page);
  if (kind === "word" && !numberOf.has(name)) sayUnknown(page, name, spelledLike(model.shownWords, name), []);
  remember(page, "replaceState", location.href);
}

function decodedAddress(hash) {
  const [, kind, name] = /^#(word|topic)=(.*)$/s.exec(hash) ?? [null, "", ""];
  try {
    return [kind, decodeURIComponent(name)];
  } catch {
    return ["", ""];
  }
}

begin().catch((error) => {
  const missing = typeof DecompressionStream === "undefined";
  const reason = missing ? "This browser is too old to unpack the data." : `The page cannot be shown: ${error}`;
  document.body.append(element("p", { class: "trouble", role: "alert" }, reason));
  throw error;
});
