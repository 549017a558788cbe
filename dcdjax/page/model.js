// The packed text enters; words, topics and their numbers leave, as `report.py` computed them.

const KINDS = {
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
  const told = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 8, length)));
  const arrays = {};
  let place = 8 + length;
  for (const [name, { type, shape }] of Object.entries(told.arrays)) {
    const size = shape.reduce((product, extent) => product * extent, 1);
    arrays[name] = { values: new KINDS[type](buffer, place, size), width: shape.at(-1), shape };
    place += Math.ceil(arrays[name].values.byteLength / 8) * 8;
  }
  const row = (name, number) => {
    const { values, width } = arrays[name];
    return values.subarray(number * width, (number + 1) * width);
  };
  // Of a row of codes, each told by how much it is above the one before, in 16 bits.
  const probabilities = (name, number) => {
    const [largest] = arrays[`${name}_largest`].values;
    let code = 0;
    return Array.from(row(`${name}_codes`, number), (more) => {
      code = (code + more) & 0xffff;
      return code === 0 ? 0 : largest * Math.exp((1 - code) / told.steps_of_log);
    });
  };
  const pathShare = (code) => told.least_share ** ((255 - code) / 254);
  const { words, starts, coherence } = told;
  const weights = arrays.weights.values;
  const startOf = starts.flatMap((size, start) => Array(size).fill(start));
  const numPaths = arrays.paths.width;
  const used = told.record.used?.length === starts.length ? told.record.used : starts.map((_, start) => start);

  return {
    ...told,
    told: words.slice(0, told.num_told), // the others only name topics
    numTopics: weights.length,
    weights,
    startOf,
    used,
    count: (number) => arrays.counts?.values[number],
    coherenceOf: (topic) => coherence?.[topic] ?? null,

    // [{number, probability, paths: [{topic, share}]}]: shares of the probability, the largest first.
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

    // [{number, probability}] with P(word | topic).
    wordsOf(topic) {
      const probabilities = row("topic_word_probabilities", topic);
      return Array.from(row("topic_words", topic), (number, rank) => ({
        number,
        probability: probabilities[rank],
      }));
    },

    // [{topic, likeness}], the most alike first.
    like(topic) {
      const likeness = row("likeness", topic);
      return Array.from(row("like", topic), (other, rank) => ({ topic: other, likeness: likeness[rank] }));
    },

    nameOf: (topic, most = 3) => Array.from(row("topic_words", topic).slice(0, most), (number) => words[number]),
  };
}
