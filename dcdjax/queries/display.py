"""Show results and embeddings: short text in a terminal, tables in a notebook."""

import html
from collections.abc import Iterable, Mapping, Sequence
from numbers import Integral, Real
from typing import Any, SupportsIndex, TypeVar, overload

T = TypeVar("T")

# The columns of a usual terminal, and the rows that are shown of a long list.
_COLUMNS, _ROWS = 80, 60
# The words that the table of an embedding shows.
_FIRST_WORDS = 12
# Without these classes notebooks take what stands between two dollar signs for a formula.
_NO_FORMULAS = "tex2jax_ignore mathjax_ignore"


class ResultList(list[T]):
    """Hold a list of results. A terminal shows a long list with one result on each line, a notebook a table.

    The columns of the table are the fields of the results, which are named tuples. The list equals a plain
    list of plain tuples.

    Attributes:
      labels: what each result belongs to, if the results are lists themselves.

    Example:
      >>> from dcdjax.queries.results import TopicShare
      >>> ResultList([TopicShare(3, 0.51234567, ("tea", "cup")), TopicShare(0, 0.25, ("sea", "ship"))])
      [(3, 0.5123, 'tea cup'), (0, 0.25, 'sea ship')]
    """

    labels: Sequence[str] | None = None

    @overload
    def __getitem__(self, index: SupportsIndex) -> T: ...
    @overload
    def __getitem__(self, index: slice) -> "ResultList[T]": ...
    def __getitem__(self, index: Any) -> Any:
        found = super().__getitem__(index)
        if isinstance(index, slice):
            found = ResultList(found)
            found.labels = None if self.labels is None else self.labels[index]
        return found

    def __repr__(self) -> str:
        rows = [_row_text(row) for row in self[:_ROWS]]
        if len(self) > _ROWS:
            rows.append(f"... {len(self) - _ROWS} more")
        line = f"[{', '.join(rows)}]"
        if len(line) <= _COLUMNS and "\n" not in line:
            return line
        lines = ",\n".join(rows).replace("\n", "\n ")
        return f"[{lines}]"

    def _repr_html_(self) -> str:
        shown: Any = self[:_ROWS]
        fields = getattr(shown[0], "_fields", None) if shown else None
        if fields is None:  # a list for each of several queries, or results without names
            labels = [str(number) for number in range(len(shown))] if shown.labels is None else shown.labels
            table = _table(("", "results"), zip(labels, shown, strict=True))
        else:
            rows: Any = shown
            table = _table(fields, rows)
        rest = len(self) - len(shown)
        return table + (f"<p>{rest} more</p>" if rest else "")


def embedding_text(num_words: int, num_topics: int, num_columns: int, record: Mapping[str, Any]) -> str:
    """Return what an embedding holds and where it comes from, in one line."""
    corpus = record.get("corpus")
    corpus = corpus.get("name") if isinstance(corpus, Mapping) else corpus
    columns = f" of {num_columns} columns" if num_columns > num_topics else ""
    source = f", learned from {corpus}" if corpus else ""
    return f"Embedding({num_words} words, {num_topics} topics{columns}{source})"


def embedding_table(
    words: Sequence[str], num_topics: int, starts: Sequence[int], record: Mapping[str, Any]
) -> str:
    """Return an HTML table of what an embedding holds and where it comes from."""
    corpus = record.get("corpus")
    corpus = corpus if isinstance(corpus, Mapping) else {"name": corpus}
    of_columns = f" of {sum(starts)} columns" if sum(starts) > num_topics else ""
    of_starts = f" ({' + '.join(map(str, starts))})" if len(starts) > 1 else ""
    more = " ..." if len(words) > _FIRST_WORDS else ""
    rows = {
        "words": f"{len(words)}: {' '.join(map(_printable, words[:_FIRST_WORDS]))}{more}",
        "topics": f"{num_topics}{of_columns}{of_starts}",
        "corpus": _joined(corpus.get("name"), _counted(corpus.get("num_tokens"), "tokens")),
        "learned": _joined(record.get("created"), _counted(record.get("seconds"), "seconds")),
        "key": "" if record.get("seed") is None else str(record["seed"]),
    }
    return _table(("Embedding", ""), [(name, value) for name, value in rows.items() if value])


def _row_text(row: Any) -> str:
    """Format one result as a tuple that fits on a line, without fields that have their default."""
    if not hasattr(row, "_fields"):
        return repr(row)
    cells: list[str] = []
    usual = row._field_defaults
    special = [f"{name}={value!r}" for name, value in zip(row._fields, row, strict=True)
               if name in usual and value != usual[name]]  # fmt: skip
    for name, value in zip(row._fields, row, strict=True):
        if name in usual:
            continue
        words = _words(value)
        if words is not None:  # as many as fit beside the other cells
            value = _shortened(words, _COLUMNS - len(", ".join([*cells, *special])) - len(" (, , ''),"))
        cells.append(_number(value) or repr(value))
    return f"({', '.join(cells + special)})"


def _shortened(words: Sequence[str], width: int) -> str:
    """Join words, and leave the last ones out if they would take more than the width."""
    joined = " ".join(words)
    while len(joined) > width and len(words) > 1:
        words = words[:-1]
        joined = f"{' '.join(words)} ..."
    return joined


def _words(value: Any) -> list[str] | None:
    """Return the words of a tuple of words, or of named tuples that begin with a word."""
    if not isinstance(value, tuple | list):
        return None
    words: list[Any] = [one[0] if isinstance(one, tuple) and one else one for one in value]
    if all(isinstance(one, int) for one in words):
        return [str(one) for one in words]
    return words if all(isinstance(word, str) for word in words) else None


def _number(value: Any) -> str | None:
    """Return a number in short, or None for anything else."""
    if isinstance(value, Integral):
        return str(value)
    return f"{value:.4g}" if isinstance(value, Real) else None


def _table(header: Iterable[str], rows: Iterable[Iterable[Any]]) -> str:
    """Return an HTML table, with numbers on the right and everything escaped."""
    names = "".join(f'<th style="text-align: left">{html.escape(_printable(name))}</th>' for name in header)
    lines = "".join(f"<tr>{''.join(map(_cell, row))}</tr>" for row in rows)
    return f'<table class="{_NO_FORMULAS}"><thead><tr>{names}</tr></thead><tbody>{lines}</tbody></table>'


def _cell(value: Any) -> str:
    if isinstance(value, bool):
        value = "yes" if value else None
    number, words = _number(value), _words(value)
    if number is None:
        text = " ".join(words) if words is not None else "" if value is None else str(value)
    else:
        text = number
    side = "left" if number is None else "right"
    return f'<td style="text-align: {side}">{html.escape(_printable(text))}</td>'


def _printable(text: str) -> str:
    """Escape what cannot be printed, such as control characters and halves of characters."""
    return text if text.isprintable() else repr(text)[1:-1]


def _counted(number: Any, unit: str) -> str | None:
    return f"{number:.0f} {unit}" if isinstance(number, Real) else None


def _joined(*parts: Any) -> str:
    return ", ".join(str(part) for part in parts if part is not None)
