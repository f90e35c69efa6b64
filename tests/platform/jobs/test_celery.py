"""Celery as a doorbell: JSON only, ids only, and a silent broker loses nothing and holds nobody up."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest
from celery import Celery

from lorikeet_platform.jobs import celery_app
from lorikeet_platform.jobs.celery_app import TASK, create_celery, waker
from lorikeet_platform.settings import Settings


class Broker(Celery):  # type: ignore[misc]
    """Takes messages as a test says."""

    def __init__(self) -> None:
        super().__init__(set_as_current=False)
        self.sent: list[str] = []
        self.fault: Exception | None = None
        self.is_asked = threading.Event()
        self.may_answer = threading.Event()
        self.may_answer.set()

    def send_task(self, name: str, args: Any = None, **options: Any) -> None:
        assert (name, options) == (TASK, {"retry": False})
        self.is_asked.set()
        assert self.may_answer.wait(10)
        if self.fault is not None:
            raise self.fault
        self.sent += args

    def wait_for(self, *job_ids: str) -> None:
        deadline = time.monotonic() + 5
        while self.sent != list(job_ids):
            assert time.monotonic() < deadline
            time.sleep(0.005)


def test_messages_are_json_and_acknowledged_late() -> None:
    conf = create_celery(Settings()).conf
    assert (conf.accept_content, conf.task_serializer) == (["json"], "json")
    assert conf.task_acks_late
    assert conf.task_reject_on_worker_lost
    assert conf.worker_prefetch_multiplier == 1
    assert conf.task_ignore_result


def test_a_message_comes_again_long_before_celery_s_hour_and_no_redis_is_waited_for_for_ever() -> None:
    options = create_celery(Settings(broker_url="redis://redis:6379/0")).conf.broker_transport_options
    assert options["visibility_timeout"] == 600
    assert options["socket_timeout"] <= 5
    assert options["health_check_interval"] <= 10
    assert create_celery(Settings(broker_url="amqp://broker")).conf.broker_transport_options == {}


def test_nobody_waits_for_a_broker_and_what_it_has_no_room_for_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(celery_app, "MAX_WAITING", 2)
    broker = Broker()
    broker.may_answer.clear()
    wake = waker(broker)
    began_at = time.monotonic()
    wake("job_1")
    assert broker.is_asked.wait(5)
    for number in range(2, 9):
        wake(f"job_{number}")
    assert time.monotonic() - began_at < 1
    broker.may_answer.set()
    broker.wait_for("job_1", "job_2", "job_3")


@pytest.mark.parametrize("fault", [OSError("gone"), RuntimeError("full")])
def test_after_a_message_that_could_not_be_sent_others_wait_for_the_sweeper_a_while(
    monkeypatch: pytest.MonkeyPatch, fault: Exception
) -> None:
    monkeypatch.setattr(celery_app, "PAUSE_S", 1.5)
    broker = Broker()
    broker.fault = fault
    wake = waker(broker)
    wake("job_1")
    assert broker.is_asked.wait(5)
    time.sleep(0.05)
    broker.fault = None
    wake("job_2")
    time.sleep(1.6)
    wake("job_3")
    broker.wait_for("job_3")
