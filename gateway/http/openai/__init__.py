"""OpenAI's protocols over sessions: chat completions, responses, models.

Invariant: an agent is a model, a turn is an answer, and the conversation is the session's. What a
caller asks for and would not get is refused in OpenAI's own shape, never left out in silence.
"""
