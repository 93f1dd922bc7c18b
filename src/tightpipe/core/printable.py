"""Text from outside, e.g. the name of a file, may hold characters that a terminal would obey and not show."""

from __future__ import annotations


def printable(text: str, keep: str = "") -> str:
    r"""Return a text with a backslash escape for each character that cannot be shown.

    A file may be called almost anything. Escaped are line breaks, which would make two lines of one; control
    characters and the sequences by which a terminal is coloured or cleared; characters without width; and the
    bytes of a name that is not valid in the encoding of the file system, which Python holds as surrogates.

    Parameters
    ----------
    text
        The text.
    keep
        Characters that stay as they are although they cannot be shown, e.g. line breaks of a table.

    Returns
    -------
    str
        A text that can be encoded as UTF-8, e.g. ``a\nb.json`` with a backslash in place of a line break.
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c in keep else _escaped(c) for c in text)


def _escaped(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")
