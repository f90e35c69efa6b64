"""Celery as a doorbell: JSON only, ids only, and a silent broker loses nothing."""

from __future__ import annotations

from lorikeet_platform.jobs.celery_app import create_celery, waker
from lorikeet_platform.settings import Settings


def test_messages_are_json_and_acknowledged_late() -> None:
    conf = create_celery(Settings()).conf
    assert (conf.accept_content, conf.task_serializer) == (["json"], "json")
    assert conf.task_acks_late
    assert conf.task_reject_on_worker_lost
    assert conf.worker_prefetch_multiplier == 1
    assert conf.task_ignore_result


def test_a_broker_that_does_not_answer_is_no_error() -> None:
    celery = create_celery(Settings(broker_url="redis://127.0.0.1:1/0"))
    celery.conf.broker_transport_options = {"socket_connect_timeout": 0.2, "max_retries": 0}
    waker(celery)("job_x")
