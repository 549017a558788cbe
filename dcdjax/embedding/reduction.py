"""Merge similar topics of W, so that fewer topics remain.

    W'_ik = sum over topics l in group k of W_il

Rows stay on the simplex, because P(group | word) is the sum of P(topic | word). The starts of a consensus
find nearly the same topics; the groups are the topics that they agree on.
"""

from functools import partial

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from dcdjax.embedding.lookup import topic_sizes
from dcdjax.method.decomposition import on_simplex
from dcdjax.starts import kmeans

_NUM_ROUNDS = 20


@partial(jax.jit, static_argnames="num_topics")
def merge_topics(
    key: PRNGKeyArray, W: Float[Array, "words topics"], *, num_topics: int
) -> Float[Array, "words fewer"]:
    """Sum the columns of W in groups of similar topics, the largest group first.

    The groups are k-means clusters of the square roots of P(word | topic). The cosine of two such vectors is
    their Bhattacharyya coefficient.

    Args:
      key: random key for k-means.
      W: rows on the simplex.
      num_topics: the number of groups, at most the number of topics.

    Returns:
      W' with rows on the simplex. A group can only be empty if some topics are equal.
    """
    roots = jnp.sqrt(W / topic_sizes(W)[None, :]).T
    cosines = kmeans.cosines_to_centers(key, roots, num_clusters=num_topics, num_rounds=_NUM_ROUNDS)
    group = jnp.argmax(cosines, axis=1)
    fewer = jax.ops.segment_sum(W.T, group, num_segments=num_topics).T
    return on_simplex(fewer[:, jnp.argsort(-jnp.sum(fewer, axis=0))])
