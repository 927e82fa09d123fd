"""The ceiling: what FastAPI and uvicorn do with a request behind which there is nothing.

Run as `python -m bench.bare_http PORT` it is the server of the comparison.
"""

from __future__ import annotations

import sys

import uvicorn
from fastapi import FastAPI

app = FastAPI()


@app.get("/hello")
async def hello() -> dict[str, str]:
    """Answer."""
    return {"hello": "world"}


if __name__ == "__main__":
    uvicorn.run(app, port=int(sys.argv[1]), log_level="error", access_log=False)
