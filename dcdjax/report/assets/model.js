// Unpack the data of the page, as `encoding.py` packed it, and look up words and topics in it.

const ARRAY_TYPES = {
  uint8: Uint8Array, uint16: Uint16Array, uint32: Uint32Array, float32: Float32Array, float64: Float64Array,
};

async function unpacked(text) {
  const ascii = atob(text);
  const bytes = new Uint8Array(ascii.length);
  for (let place = 0; place < ascii.length; place++) bytes[place] = ascii.charCodeAt(place);
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Response(stream).arrayBuffer();
}

function modelOf(buffer) {
  const length = new Uint32Array(buffer, 0, 1)[0];
  const content = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 8, length)));
  const arrays = {};
  let place = 8 + length;
  for (const [name, { type, shape }] of Object.entries(content.arrays)) {
    const size = shape.reduce((product, extent) => product * extent, 1);
    arrays[name] = { values: new ARRAY_TYPES[type](buffer, place, size), width: shape.at(-1), shape };
    place += Math.ceil(arrays[name].values.byteLength / 8) * 8;
  }
  const row = (name, number) => {
    const { values, width } = arrays[name];
    return values.subarray(number * width, (number + 1) * width);
  };
  // A code is stored as the difference to the code before it in the row, modulo 2^16. Code 0 means zero.
  const probabilities = (name, number) => {
    const [largest] = arrays[`${name}_largest`].values;
    let code = 0;
    return Array.from(row(`${name}_codes`, number), (more) => {
      code = (code + more) & 0xffff;
      return code === 0 ? 0 : largest * Math.exp((1 - code) / content.log_steps);
    });
  };
  const pathShare = (code) => content.min_share ** ((255 - code) / 254);
  const { words, starts, coherence, subtopics } = content;
  const weights = arrays.weights.values;
  const numPaths = arrays.paths.width;
  const used = content.record.used?.length === starts.length ? content.record.used : starts.map((_, start) => start);
  const junk = new Set(content.junk);

  return {
    ...content,
    shownWords: words.slice(0, content.num_shown), // the words after them only name topics
    numTopics: weights.length,
    weights,
    whole: arrays.counts ? "of the text" : "of all words", // what the weights are shares of
    used,
    count: (number) => arrays.counts?.values[number],
    coherenceOf: (topic) => coherence?.[topic] ?? null,
    isJunk: (topic) => junk.has(topic),

    // [{number, probability, paths: [{topic, share}]}]: the topics with the largest shares of the probability.
    neighbors(number) {
      const near = row("neighbors", number);
      const values = probabilities("neighbor", number);
      return Array.from(near, (neighbor, rank) => {
        const first = (number * near.length + rank) * numPaths;
        const paths = [];
        for (let path = first; path < first + numPaths; path++) {
          const code = arrays.path_codes.values[path];
          if (code > 0) paths.push({ topic: arrays.paths.values[path], share: pathShare(code) });
        }
        return { number: neighbor, probability: values[rank], paths };
      });
    },

    // [{topic, probability}] with P(topic | word).
    topicsOf(number) {
      const values = probabilities("word_topic", number);
      return Array.from(row("word_topics", number), (topic, rank) => ({
        topic,
        probability: values[rank],
      }));
    },

    // [{number, share}] with P(topic | word), the most telling words first.
    wordsOf(topic) {
      const shares = row("topic_word_shares", topic);
      return Array.from(row("topic_words", topic), (number, rank) => ({ number, share: shares[rank] }));
    },

    // [{subtopic, weight, words}], where words are numbers. A topic with one part has no others to tell it from.
    subtopicsOf(topic) {
      const parts = subtopics?.[topic] ?? [];
      return parts.length < 2 ? [] : parts.map((subtopic) => ({
        subtopic,
        weight: arrays.subtopic_weights.values[subtopic],
        words: Array.from(row("subtopic_words", subtopic)),
      }));
    },

    // [{topic, similarity}], the most similar first.
    similarTopics(topic) {
      const similarity = row("topic_similarity", topic);
      return Array.from(row("similar_topics", topic), (other, rank) => ({ topic: other, similarity: similarity[rank] }));
    },

    // Up to three telling words.
    labelOf: (topic) => content.labels[topic].map((number) => words[number]),
    firstWords: (topic, most) => Array.from(row("topic_words", topic).slice(0, most), (number) => words[number]),
  };
}
