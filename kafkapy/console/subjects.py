"""Subjects of the schema registry that --schema-registry names, and the versions of each."""

from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from kafkapy.console.brokers import BadRequest, ClusterError, NotFound
from kafkapy.console.render import Renderer
from kafkapy.console.settings import Settings
from kafkapy.decoders.errors import DecodeError
from kafkapy.decoders.registry import NotRegisteredError, SubjectVersion

MAX_NAME: Final = 1000
MAX_SHOWN: Final = 1000
"""Characters of a subject, which Confluent's registry does not bound; subjects on a page: a search finds others."""


class Subjects:
    """Handlers run in threads: they block."""

    def __init__(self, settings: Settings, renderer: Renderer) -> None:
        self._registry = settings.registry
        self._renderer = renderer

    def routes(self) -> list[Route]:
        return [
            Route("/subjects", self.subjects, methods=["GET"]),
            Route("/subject", self.subject, methods=["GET"]),
        ]

    def subjects(self, request: Request) -> Response:
        search = request.query_params.get("q", "")[:200]
        found: list[str] = []
        problem = None
        if self._registry is None or not self._registry.has_subjects:
            problem = "Name a schema registry: kafkapy console --schema-registry http://127.0.0.1:8081"
        else:
            found = _from_registry(self._registry.subjects)
        names = [each for each in found if search.lower() in each.lower()]
        return self._renderer.page(
            request, "subjects.html", names=names[:MAX_SHOWN], count=len(names), search=search, problem=problem
        )

    def subject(self, request: Request) -> Response:
        name = request.query_params.get("name", "")
        if not 0 < len(name) <= MAX_NAME or self._registry is None or not self._registry.has_subjects:
            raise BadRequest(f"A subject has 1 to {MAX_NAME} characters, and a registry.")
        versions = _from_registry(lambda: self._versions(name))
        return self._renderer.page(request, "subject.html", name=name, versions=versions)

    def _versions(self, name: str) -> list[SubjectVersion]:
        """Return the newest versions of a subject. Raises NotFound, DecodeError."""
        assert self._registry is not None, "checked by the caller"
        try:
            return self._registry.newest_versions(name)
        except NotRegisteredError as error:  # what is no registry has no /subjects either, which is another error
            raise NotFound("The schema registry has no such subject.") from error


def _from_registry(ask: Any) -> Any:
    """Return what `ask` returns. Raises ClusterError for what the registry says instead of a response."""
    try:
        return ask()
    except DecodeError as error:
        raise ClusterError(f"{str(error)[:1].upper()}{str(error)[1:]}.") from error
