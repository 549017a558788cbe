// The page begins here: what is chosen, by search, click or address, is shown everywhere.

async function begin() {
  const model = modelOf(await unpacked(byId("data").textContent));
  const page = {
    model,
    numberOf: new Map(model.told.map((word, number) => [word, number])),
    chosen: { word: model.begin, topic: model.topicsOf(model.begin)[0].topic },
  };
  byId("size").textContent = sizes(model);
  document.querySelector("main").hidden = false;
  const go = {
    toWord: (number) => choose(page, { word: number, topic: model.topicsOf(number)[0].topic }, "word"),
    toTopic: (topic) => choose(page, { topic }, "topic"),
    // Who is on the map goes on there.
    toTopicHere: (topic) => choose(page, { topic }, null),
  };
  const isShown = startChooser(model, () => {
    page.map.redraw();
    page.table.redraw();
  });
  page.go = go;
  page.noteWord = search(model.told, page.numberOf, go.toWord, (...asked) => refuse(page, ...asked));
  page.map = topicMap(model, isShown, go);
  page.table = topicTable(model, isShown, go);
  showTraining(model);
  addEventListener("popstate", () => read(page));
  read(page);
}

function sizes({ told, num_words: numWords, numTopics, count }) {
  const which = count(0) === undefined ? "first" : "most frequent";
  const some = told.length < numWords ? `the ${whole(told.length)} ${which} of ` : "";
  return `${some}${counted(numWords, "word")}, ${counted(numTopics, "topic")}`;
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
    say(`Topic ${topic}: ${model.nameOf(topic, 5).join(", ")}`);
    if (!same) remember(page, "pushState", `#topic=${topic}`);
  }
  if (place) reveal(place);
}

function show({ model, chosen, go, noteWord, map, table }) {
  byId("unknown").replaceChildren();
  document.title = `${model.words[chosen.word]} · ${model.title}`;
  showWord(model, chosen.word, go);
  showTopic(model, chosen.topic, go);
  noteWord(chosen.word);
  map.choose(chosen);
  table.choose(chosen.topic);
}

const say = (text) => (byId("status").textContent = text);

// Focus goes along, so that who reads by ear, or on a phone, stands where the answer is. Only this page is scrolled:
// scrollIntoView would move a notebook around it, too.
function reveal(name) {
  const heading = byId(`${name}-heading`);
  heading.focus({ preventScroll: true });
  const covered = document.querySelector("header").getBoundingClientRect().bottom;
  const { top, bottom } = heading.getBoundingClientRect();
  if (top < covered || bottom > innerHeight) scrollBy(0, top - covered - 16);
}

function refuse({ model, go }, typed, like) {
  const links = like.flatMap((number) => [" ", wordLink(model, number, go.toWord)]);
  byId("unknown").replaceChildren(
    bdi(typed),
    ` is not among the ${counted(model.told.length, "word")}.`,
    ...(links.length ? [" Like it:", ...links] : []),
  );
}

// --- Addresses -------------------------------------------------------------------------------------

// By the word itself: the same file may have become another page.
function remember({ model, chosen }, how, place) {
  if (INSIDE) return;
  try {
    history[how]({ word: model.words[chosen.word], topic: chosen.topic }, "", place);
  } catch {
    // A browser that finds it too often. What was asked for is shown all the same.
  }
}

// What the history or the address names, where that is here.
function read(page) {
  const { model, chosen, numberOf } = page;
  const { word, topic } = INSIDE ? {} : (history.state ?? {});
  const [kind, name] = decodedAddress(location.hash);
  const isTopic = (number) => Number.isInteger(number) && number >= 0 && number < model.numTopics;
  if (numberOf.has(word) && isTopic(topic)) Object.assign(chosen, { word: numberOf.get(word), topic });
  else if (kind === "topic" && /^\d+$/.test(name) && isTopic(Number(name))) chosen.topic = Number(name);
  else {
    chosen.word = numberOf.get(name) ?? model.begin;
    chosen.topic = model.topicsOf(chosen.word)[0].topic;
  }
  show(page);
  if (kind === "word" && !numberOf.has(name)) refuse(page, name, spelledLike(model.told, name));
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
  const reason = missing ? "This browser is too old to unpack it." : `It cannot be shown: ${error}`;
  document.body.append(element("p", { class: "trouble", role: "alert" }, reason));
  throw error;
});
