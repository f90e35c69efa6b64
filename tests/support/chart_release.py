"""A rendered release of the chart as a list of documents, with the few look-ups that its tests share.

Rendering is offline: the Helm SDK as a library, no cluster, so `lookup` finds nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import helm_python
import yaml

CHART_DIR = Path(__file__).parents[2] / "helm" / "lorikeet"
VALUES_FILES = sorted((CHART_DIR / "ci").glob("*-values.yaml"))
HOOK = "helm.sh/hook"

Document = dict[str, Any]


@dataclass(frozen=True)
class Release:
    """What one values file renders to; `notes` is what Helm prints after an installation."""

    documents: list[Document]
    notes: str

    def of_kind(self, kind: str) -> list[Document]:
        return [document for document in self.documents if document["kind"] == kind]

    def one(self, kind: str, suffix: str) -> Document:
        """The only document of a kind whose name ends in `-suffix`."""
        (found,) = (d for d in self.of_kind(kind) if d["metadata"]["name"].endswith(f"-{suffix}"))
        return found

    def workloads(self) -> list[Document]:
        return [document for document in self.documents if document["kind"] in ("Deployment", "Job")]

    def containers(self) -> Iterator[tuple[str, Document]]:
        """Every container with the name of its workload."""
        for workload in self.workloads():
            pod = workload["spec"]["template"]["spec"]
            for container in [*pod.get("initContainers", []), *pod["containers"]]:
                yield workload["metadata"]["name"], container


def render(values: Mapping[str, Any], *, name: str = "lorikeet") -> Release:
    """Raises helm_python.HelmError when a value is refused or a template fails."""
    with helm_python.Chart.load(CHART_DIR) as chart:
        rendered: dict[str, str] = chart.render(dict(values), name=name, namespace="serving")
    documents: list[Document] = []
    notes = ""
    for path, text in rendered.items():
        if path.endswith("NOTES.txt"):
            notes = text
        else:
            documents += [document for document in yaml.safe_load_all(text) if document]
    return Release(documents, notes)


def read_values(path: Path) -> dict[str, Any]:
    values: dict[str, Any] = yaml.safe_load(path.read_text())
    return values


def hook_of(document: Document) -> set[str]:
    """The moments at which Helm runs a document as a hook; empty for an ordinary object."""
    return set(filter(None, document["metadata"].get("annotations", {}).get(HOOK, "").split(",")))


def selects(selector: Mapping[str, str], labels: Mapping[str, str]) -> bool:
    return selector.items() <= labels.items()
