"""The routes by which people give the labels that a promise needs, and the page that calls them.

Only administrators see the texts and label them: a promise is proven by these labels. The page itself holds nothing, and
everybody may open it (serving/http/access/access.py): a browser sends no key of itself, the page asks for it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from fastapi import FastAPI
from pydantic import BaseModel, Field
from starlette.requests import Request
from starlette.responses import Response

from pliant import labelling
from pliant.errors import InputError
from pliant.labelling import LabelsError
from pliant.serving.http.access.access import check_admin
from pliant.serving.http.api_errors import ApiError
from pliant.serving.http.app import endpoint_of, errors, json_response, path_parameters, unknown_task
from pliant.serving.http.bodies import Closed, parse, read_body, schema_of
from pliant.serving.http.pages import page
from pliant.serving.loop.outcomes import MAX_LABELS

T = TypeVar("T")


class GivenLabel(Closed):
    text: str = Field(description="as the question has it")
    text2: str | None = Field(default=None, description="the second text of a pair")
    label: str = Field(description="one of the classes of the task")


class QuestionText(BaseModel):
    text: str
    text2: str | None = Field(description="the second text of a pair")


class TaskQuestions(BaseModel):
    task: str
    purpose: str = Field(description="a sentence on what the labels would buy")
    classes: list[str]
    wanted: int = Field(description="labels, with those that are there")
    texts: list[QuestionText] = Field(description="those without a label, in random order")


class QuestionList(BaseModel):
    tasks: list[TaskQuestions]


class TakenLabels(BaseModel):
    taken: int = Field(description="labels that are new")
    left: int = Field(description="texts without a label")


def add_questions(app: FastAPI) -> None:
    """Add the routes below /questions, and the page /label."""
    app.add_api_route(
        "/questions",
        _questions,
        methods=["GET"],
        summary="List the texts whose labels a promise needs",
        responses={200: {"model": QuestionList}, **errors(403, 503)},
    )
    labels = {"type": "array", "items": schema_of(GivenLabel), "minItems": 1, "maxItems": MAX_LABELS}
    content = {"schema": labels, "example": [{"text": "Good.", "label": "positive"}]}
    app.add_api_route(
        "/questions/{task}",
        _take,
        methods=["POST"],
        summary="Label texts of these, all or none",
        responses={200: {"model": TakenLabels}, **errors(400, 403, 404, 413, 415, 422, 503)},
        openapi_extra={
            "parameters": path_parameters("/questions/{task}"),
            "requestBody": {"required": True, "content": {"application/json": content}},
        },
    )
    app.add_api_route("/label", page(Path(__file__).with_name("label.html")), methods=["GET"], include_in_schema=False)


async def _questions(request: Request) -> Response:
    check_admin(request, "see the texts whose labels are wanted")
    return json_response({"tasks": await _in_thread(_read, labelling.folder_of(endpoint_of(request).settings.home))})


async def _take(request: Request) -> Response:
    client, settings, task = (
        check_admin(request, "label texts"),
        endpoint_of(request).settings,
        request.path_params["task"],
    )
    value = await parse(request, await read_body(request, settings.max_body_bytes))
    if not isinstance(value, list) or not 0 < len(value) <= MAX_LABELS:
        shown = f"a list of {len(value)}" if isinstance(value, list) else f"a JSON {type(value).__name__}"
        raise InputError("labels", shown, f"a list of 1 to {MAX_LABELS}")
    given = [GivenLabel.read(each, "labels", str(at)) for at, each in enumerate(value)]
    labels = [(each.text, each.text2, each.label) for each in given]
    by = f"{client.tenant} {client.key}".strip() or "service"
    taken, left = await _in_thread(_kept, labelling.folder_of(settings.home), task, labels, by)
    return json_response({"taken": taken, "left": left})


async def _in_thread(call: Callable[..., T], *arguments: Any) -> T:
    """Return what a call that works on files returns. Raises what it raises; `ApiError` (503) for files that fail."""
    try:
        return await asyncio.to_thread(call, *arguments)
    except LabelsError as error:
        raise ApiError(503, "not_kept", str(error)) from None


def _read(folder: Path) -> list[dict[str, Any]]:
    """Return the questions of all tasks, as `TaskQuestions` documents them."""
    return [
        {
            "task": task,
            "purpose": (questions := labelling.questions_of(folder, task)).purpose,
            "classes": questions.classes,
            "wanted": len(questions.texts),
            "texts": [{"text": text, "text2": text2} for text, text2 in labelling.unanswered(folder, task).texts],
        }
        for task in labelling.tasks(folder)
    ]


def _kept(folder: Path, task: str, labels: list[tuple[str, str | None, str]], by: str) -> tuple[int, int]:
    """Keep labels, and return how many are new, and how many texts have none. Raises `ApiError` (404), and as `take`."""
    if task not in (tasks := labelling.tasks(folder)):
        raise unknown_task(task, "task", tasks or ["those whose labels are wanted, and now there is none"])
    taken = labelling.take(folder, task, labels, by, lambda at: f"labels[{at}]: ")
    return taken, len(labelling.unanswered(folder, task).texts)
