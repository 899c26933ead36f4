"""What the service answers to the examples of its description, all with the real planner.

`python -m tests.contract.api.documented_answers` writes what the description shows of it.
"""

from __future__ import annotations

import json
import tempfile
from typing import Any

from fastapi.testclient import TestClient

from api.app import create_app
from api.caller import Scope
from api.description import EXAMPLES_FOLDER
from api.migrate import upgrade_url
from api.settings import Settings
from tests.contract.api.solving import ended

Document = dict[str, Any]


def documented_answers(client: TestClient) -> dict[str, Document]:
    """Return what each operation with an example answers, by the name of the example."""
    examples = _request_examples(client)
    begun = client.post("/v1/plans", json=examples["PlanRequest"], headers={"Prefer": "wait=0"})
    assert begun.status_code == 202, begun.text
    plan_id = ended(client, begun.json()["id"]).plan_id
    path = f"/v1/plans/{plan_id}"
    run = {**examples["RunRequest"], "plan_id": plan_id}
    sent = {
        "plan": client.post("/v1/plans", json=examples["PlanRequest"]),
        "labels": client.patch(f"{path}/labels", json=examples["PlanLabelsChange"]),
        "plans": client.get("/v1/plans"),
        "estimate": client.post("/v1/estimates", json=examples["EstimateRequest"]),
        "operation": client.get(begun.headers["location"]),
        "run": client.post("/v1/runs", json=run),
        "tuning": client.post("/v1/tunings", json=examples["TuningRequest"]),
    }
    assert {name: answer.status_code for name, answer in sent.items() if answer.is_error} == {}
    return {name: answer.json() for name, answer in sent.items()}


def _request_examples(client: TestClient) -> dict[str, Document]:
    schemas = client.get("/openapi.json").json()["components"]["schemas"]
    return {name: schema["examples"][0] for name, schema in schemas.items() if "examples" in schema}


def main() -> None:
    """Write the answers where the description reads them."""
    with tempfile.TemporaryDirectory() as folder:
        url = f"sqlite:///{folder}/meshwright.db"
        upgrade_url(url)
        settings = Settings(
            database_url=url, allowed_hosts=("testserver",), anonymous_scopes=tuple(Scope)
        )
        with TestClient(create_app(settings)) as client:
            answers = documented_answers(client)
    EXAMPLES_FOLDER.mkdir(exist_ok=True)
    for name, answer in answers.items():
        text = json.dumps(answer, indent=1, ensure_ascii=False) + "\n"
        (EXAMPLES_FOLDER / f"{name}.json").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
