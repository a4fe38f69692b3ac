"""ARR-COC, the built-in model family: looks at an image with a query in mind and grants visual tokens to its patches.

In flow order: `texture` (image -> features), `knowing` (three scorers), `balancing` (one relevance map), `attending`
(budgets and top-K), `realizing` (the chosen patches' features); `model` composes them and `arr_coc_01` does so for the
public 0.1 checkpoints. `presets` declares them to edgekit. `scenes` and what it uses (`objects`, `drawing`,
`background`, `photographs`, `exposure`) render the data, `questions` asks about them, `queries` encodes words,
`presence` tells whether anything answers, `train` trains, `evaluate` measures, `gather` fetches photographs.
"""
