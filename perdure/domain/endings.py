"""What stands at the end of an answer, or in its place, when it did not end by itself.

Invariant: whoever shows an answer can tell how it ended by these words alone.
"""

from __future__ import annotations

#: The answer was cut at the model's output limit.
CUT = "[The answer was cut at the model's output limit.]"
#: The provider stopped the answer.
FILTERED = "[The provider's content filter stopped the answer.]"
#: What stands in the place of an answer that may not leave.
WITHHELD = "[withheld] Policy does not let this answer out."
