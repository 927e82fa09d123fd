"""From what is about to happen to what policy is asked, at every hook; and what is recorded of it.

Invariant: the one place that turns an act into a question. What is asked in a turn stands in
`turns`, what is asked of a call in `calls`, and how in `asking`.
"""

from perdure.domain.endings import WITHHELD
from perdure.guard.asking import Judged
from perdure.guard.turns import Guard

__all__ = ["WITHHELD", "Guard", "Judged"]
