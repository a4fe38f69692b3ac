"""ARR-COC, the built-in model family: looks at an image with a query in mind and grants visual tokens to its patches.

In flow order: `texture` (image -> features), `knowing` (three scorers), `balancing` (one relevance map), `attending`
(budgets and top-K), `realizing` (the chosen patches' features); `model` composes them and `arr_coc_01` does so for the
public 0.1 checkpoints. `presets` declares them to edgekit, `queries` encodes words, `datasets` reads the shipped
pictures. The repository's `training/` renders the pictures and trains.
"""
