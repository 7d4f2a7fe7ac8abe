# SPDX-License-Identifier: Apache-2.0
"""The table of a paper's figures beside ebb's, in a page of docs."""


def write_docs(path, begin, end, own, rows):
    """Puts rows into the page between two lines; own: the head of the column with ebb's own policy."""
    with open(path, encoding="utf-8") as file:
        text = file.read()
    heads = ["figure", "of", "unit", "paper", "same rule", own, "note"]
    lines = ["| " + " | ".join(heads) + " |", "| " + " | ".join(["---"] * len(heads)) + " |"]
    lines += ["| " + " | ".join(str(cell) for cell in row) + " |" for row in rows]
    before, rest = text.split(begin + "\n")
    after = rest[rest.index(end):]
    with open(path, "w", encoding="utf-8") as file:
        file.write(before + begin + "\n" + "\n".join(lines) + "\n" + after)
