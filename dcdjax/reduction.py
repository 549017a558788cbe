"""A W of many topics enters; one of fewer leaves, whose topics are sums of those that resemble each other.

    W'_ik = sum over topics l in group k of W_il

Rows stay on the simplex: P(group | word) is the sum of P(topic | word). Of a consensus of starts, which find
much the same topics, groups are what they agree on.
"""

from functools import partial

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from dcdjax import spectrum
from dcdjax.decomposition import on_simplex
from dcdjax.queries import topic_sizes

_NUM_ROUNDS = 20


@partial(jax.jit, static_argnames="num_topics")
def merged(
    key: PRNGKeyArray, W: Float[Array, "words topics"], *, num_topics: int
) -> Float[Array, "words fewer"]:
    """Sums columns in groups, the largest group first.

    Groups are clusters of the square roots of P(word | topic), whose cosines are Bhattacharyya coefficients.

    Args:
      key: of the clusters.
      W: rows on the simplex.
      num_topics: how many groups, at most as many as there are topics.

    Returns:
      W', rows on the simplex. A group may be empty only where topics are equal.
    """
    roots = jnp.sqrt(W / topic_sizes(W)[None, :]).T
    cosines = spectrum.clusters(key, roots, num_clusters=num_topics, num_rounds=_NUM_ROUNDS)
    group = jnp.argmax(cosines, axis=1)
    fewer = jax.ops.segment_sum(W.T, group, num_segments=num_topics).T
    return on_simplex(fewer[:, jnp.argsort(-jnp.sum(fewer, axis=0))])
