// Search for a typed word or topic, complete it, or suggest words of similar spelling.

const MOST_COMPLETIONS = 8;
const MOST_TOPICS = 4;

// Remove case, accents and variants of characters: "cafe" finds "Café".
const folded = (text) => text.normalize("NFKD").replace(/\p{M}/gu, "").toLowerCase();

// Find words that begin with the typed text, then words that contain it. Each list keeps the order of the embedding,
// which is usually that of frequency.
function completer(words, spelled) {
  return (typed) => {
    const wanted = folded(typed);
    if (!wanted) return { beginning: [], inside: [] };
    const kinds = [[], [], [], []];
    for (let number = 0; number < words.length; number++) {
      const at = spelled[number].indexOf(wanted);
      if (at < 0) continue;
      const kind = words[number] === typed ? 0 : spelled[number] === wanted ? 1 : at === 0 ? 2 : 3;
      if (kinds[kind].length < MOST_COMPLETIONS) kinds[kind].push(number);
    }
    const [same, alike, beginning, inside] = kinds;
    return { beginning: [...same, ...alike, ...beginning], inside };
  };
}

// Return the topic that is asked for by its number, as in "topic 12", "#12" or "12".
function numberedTopic(model, typed) {
  const [, digits] = /^(?:topic\s*|#\s*)?(\d{1,9})$/i.exec(typed) ?? [];
  return digits !== undefined && Number(digits) < model.numTopics ? Number(digits) : undefined;
}

// Find the topic of a number, then topics whose words begin with the typed text: those where it is a whole word, and
// those where it comes early, first.
function topicFinder(model, spelled) {
  const topics = Array.from(model.weights.keys());
  return (typed) => {
    const wanted = folded(typed);
    if (!wanted) return [];
    const numbered = numberedTopic(model, typed);
    const rank = (topic) => {
      if (topic === numbered) return -1;
      const ranks = model.wordsOf(topic).map(({ number }, place) =>
        spelled[number] === wanted ? place : spelled[number].startsWith(wanted) ? 100 + place : Infinity,
      );
      return Math.min(...ranks);
    };
    const ranked = topics.map((topic) => ({ topic, rank: rank(topic) })).filter((one) => one.rank < Infinity);
    return d3.sort(ranked, (one) => one.rank).slice(0, MOST_TOPICS).map((one) => one.topic);
  };
}

// Return the Levenshtein distance, or `most + 1` if it is larger.
function distance(one, other, most) {
  if (Math.abs(one.length - other.length) > most) return most + 1;
  let before = Array.from({ length: other.length + 1 }, (_, place) => place);
  for (let i = 1; i <= one.length; i++) {
    const now = [i];
    for (let j = 1; j <= other.length; j++) {
      const same = one[i - 1] === other[j - 1] ? 0 : 1;
      now[j] = Math.min(before[j] + 1, now[j - 1] + 1, before[j - 1] + same);
    }
    if (Math.min(...now) > most) return most + 1;
    before = now;
  }
  return before[other.length];
}

function spelledLike(words, typed) {
  const wanted = folded(typed).slice(0, 40);
  const most = wanted.length < 5 ? 1 : 2;
  const found = [[], [], []];
  words.forEach((word, number) => {
    const far = distance(wanted, folded(word), most);
    if (far <= most) found[far].push(number);
  });
  return found.flat().slice(0, 5);
}

// The input is an ARIA combobox: the focus stays in the input, which names the active option.
function search(model, numberOf, { toWord, toTopic }, sayUnknown) {
  const form = byId("search");
  const input = byId("question");
  const list = byId("completions");
  const words = model.shownWords;
  const spelled = model.words.map(folded);
  const complete = completer(words, spelled);
  const topicsLike = topicFinder(model, spelled);
  let shown = []; // each {word} or {topic}
  let active = -1;

  const close = () => {
    shown = [];
    active = -1;
    list.hidden = true;
    list.replaceChildren();
    input.setAttribute("aria-expanded", "false");
    input.removeAttribute("aria-activedescendant");
  };
  const take = ({ word, topic }) => {
    close();
    input.value = topic === undefined ? words[word] : `topic ${topic}`;
    if (topic === undefined) toWord(word);
    else toTopic(topic);
  };
  const mark = (place) => {
    list.children[active]?.setAttribute("aria-selected", "false");
    active = place;
    const option = list.children[active];
    if (option) {
      option.setAttribute("aria-selected", "true");
      option.scrollIntoView({ block: "nearest" });
      input.setAttribute("aria-activedescendant", option.id);
    } else input.removeAttribute("aria-activedescendant");
  };
  const open = () => {
    close();
    const typed = input.value.trim();
    const found = Object.values(complete(typed)).flat().slice(0, MOST_COMPLETIONS);
    shown = [...found.map((word) => ({ word })), ...topicsLike(typed).map((topic) => ({ topic }))];
    shown.forEach((one, place) => {
      // A mouse press would take the focus from the input, and that would close the list.
      const pressed = (event) => event.preventDefault();
      const option = { role: "option", id: `completion-${place}`, "aria-selected": "false" };
      const told = one.topic === undefined ? [bdi(words[one.word])] : ["Topic ", topicName(model, one.topic)];
      list.append(element("li", { ...option, mousedown: pressed, click: () => take(one) }, ...told));
    });
    list.hidden = !shown.length;
    input.setAttribute("aria-expanded", String(shown.length > 0));
  };

  input.addEventListener("input", open);
  input.addEventListener("focus", () => input.select());
  input.addEventListener("blur", close);
  input.addEventListener("keydown", (event) => {
    if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      if (!shown.length) open();
      const ahead = event.key === "ArrowDown" ? 1 : -1;
      const places = shown.length + 1; // one place is the input itself
      if (shown.length) mark(((active + 1 + ahead + places) % places) - 1);
      event.preventDefault();
    } else if (event.key === "Escape") {
      if (!shown.length) input.value = "";
      close();
    }
  });
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    const typed = input.value.trim();
    const { beginning, inside } = complete(typed);
    const word = numberOf.get(input.value) ?? beginning[0];
    const topic = numberedTopic(model, typed);
    if (active >= 0) take(shown[active]);
    else if (word !== undefined) take({ word });
    else if (topic !== undefined) take({ topic });
    else if (typed) {
      close();
      const similar = [...new Set([...inside, ...spelledLike(words, typed)])].slice(0, MOST_COMPLETIONS);
      sayUnknown(typed, similar, topicsLike(typed));
    }
  });
  return (number) => {
    if (document.activeElement !== input) input.value = words[number];
  };
}
