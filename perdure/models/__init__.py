"""Models: what is asked of one, what it answers, why it does not.

Invariant: provider formats, SDKs and their errors end here. Importing this package imports none of
them; a provider's library is loaded when its first model is resolved.
"""

from perdure.models.chain import ModelChain
from perdure.models.failure import FailureKind, ModelFailure
from perdure.models.prompt import Answer, Model, OnText, Piece, Prompt, ToolOffer
from perdure.models.rehearsal import REHEARSAL
from perdure.models.resolution import close_models, resolve

__all__ = [
    "REHEARSAL",
    "Answer",
    "FailureKind",
    "Model",
    "ModelChain",
    "ModelFailure",
    "OnText",
    "Piece",
    "Prompt",
    "ToolOffer",
    "close_models",
    "resolve",
]
