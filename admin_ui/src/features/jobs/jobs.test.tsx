import { screen, waitFor } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { describe, expect, it } from "vitest";

import type { Chore, Job } from "@/api/types";
import { stubNetwork } from "@/testing/network";
import { renderApp } from "@/testing/render-app";
import { list, page } from "@/testing/samples";

function job(id: string, fields: Partial<Job> = {}): Job {
  return {
    id,
    tenant: "acme",
    kind: "validate",
    state: "done",
    adapter: "pirate",
    version: 2,
    attempt: 1,
    max_attempts: 5,
    last_error: null,
    run_after: 1_700_000_000,
    created_at: 1_700_000_000,
    finished_at: 1_700_000_001,
    ...fields,
  };
}

function chore(name: string, fields: Partial<Chore> = {}): Chore {
  return { name, due_at: 4e9, running: false, finished_at: 1_700_000_000, error: null, result: null, ...fields };
}

describe("the jobs page", () => {
  it("tries a failed job again", async () => {
    const failed = job("job_1", { state: "failed", last_error: "the engine went away" });
    const network = stubNetwork({
      "GET /admin/v1/jobs": page([failed, job("job_2")]),
      "GET /admin/v1/chores": { body: list() },
      "POST /admin/v1/jobs/job_1/retry": { body: { ...failed, state: "queued" } },
    });
    renderApp("/jobs");
    expect(await screen.findByTestId("job-job_1")).toHaveTextContent("the engine went away");
    network.answer("GET /admin/v1/jobs", page([{ ...failed, state: "queued" }, job("job_2")]));
    await userEvent.click(screen.getByRole("button", { name: "Try validate job_1 again" }));
    await waitFor(() => {
      expect(screen.getByTestId("job-job_1")).toHaveAttribute("data-state", "queued");
    });
  });

  it("asks for the jobs of one state", async () => {
    const network = stubNetwork({ "GET /admin/v1/jobs": page([]), "GET /admin/v1/chores": { body: list() } });
    renderApp("/jobs");
    await userEvent.click(await screen.findByRole("radio", { name: "failed" }));
    expect(await screen.findByText("No job is failed")).toBeVisible();
    expect(new URL(network.requests("GET /admin/v1/jobs").at(-1)?.url ?? "").searchParams.get("state")).toBe("failed");
  });

  it("tells how each chore went and what is running", async () => {
    const chores = [
      chore("usage.check", { result: { mismatches: 0 } }),
      chore("usage.reaper", { error: "EngineUnavailable" }),
      chore("usage.rollups", { running: true }),
      chore("purge", { finished_at: null, due_at: 1 }),
    ];
    stubNetwork({ "GET /admin/v1/jobs": page([]), "GET /admin/v1/chores": { body: list(...chores) } });
    renderApp("/jobs");
    expect(await screen.findByTestId("chore-usage.check")).toHaveTextContent("mismatches 0");
    expect(screen.getByTestId("chore-usage.reaper")).toHaveTextContent("failed");
    expect(screen.getByTestId("chore-usage.rollups")).toHaveTextContent("running");
    expect(screen.getByTestId("chore-purge")).toHaveTextContent("not yetnevernow");
  });
});
