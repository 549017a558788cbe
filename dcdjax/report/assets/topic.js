// Show a topic: its words, its subtopics, and the topics with similar words.

function showTopic(model, topic, { toWord, toTopic }) {
  const heading = byId("topic-heading");
  const label = model.labelOf(topic).flatMap((word, place) => [place ? " · " : " ", bdi(word)]);
  heading.replaceChildren(element("span", { class: "kicker" }, `Topic ${topic}`), ...label);
  const coherence = model.coherenceOf(topic);
  const facts = [`${percent(model.weights[topic])} ${model.whole}`];
  if (coherence !== null) facts.push(`coherence ${signed(coherence)}`);
  byId("topic-note").textContent = facts.join(" · ");
  byId("topic-junk").textContent = model.isJunk(topic) ? `Junk: ${junkReason(model)}.` : "";

  byId("topic-words").replaceChildren(
    ...model.wordsOf(topic).map(({ number, share }) => barRow(wordLink(model, number, toWord), percent(share), share)),
  );
  const parts = model.subtopicsOf(topic);
  const whole = parts.reduce((sum, part) => sum + part.weight, 0) || 1;
  byId("parts").hidden = !parts.length;
  byId("subtopics").replaceChildren(
    ...parts.map(({ weight, words }) => {
      const named = words.flatMap((number) => [wordLink(model, number, toWord), " "]);
      return barRow(element("span", {}, ...named), percent(weight / whole), weight / whole);
    }),
  );
  const similar = model.similarTopics(topic);
  byId("like").hidden = !similar.length;
  byId("like-topics").replaceChildren(
    ...similar.map(({ topic: other, similarity }) =>
      barRow(topicLink(model, other, toTopic), similarity.toFixed(2), similarity),
    ),
  );
}

// Walk through the topics in their order, junk at the end.
function topicSteps(model, { toTopicHere }) {
  const order = usefulOrder(model);
  const buttons = [[byId("topic-before"), -1], [byId("topic-after"), 1]];
  let place = 0;
  for (const [button, ahead] of buttons) {
    button.addEventListener("click", () => place + ahead in order && toTopicHere(order[place + ahead]));
  }
  return (topic) => {
    place = order.indexOf(topic);
    // Disabled buttons would lose the focus.
    for (const [button, ahead] of buttons) button.setAttribute("aria-disabled", String(!(place + ahead in order)));
  };
}

const usefulOrder = (model) => d3.sort(model.weights.keys(), (topic) => (model.isJunk(topic) ? 1 : 0), (topic) => topic);
