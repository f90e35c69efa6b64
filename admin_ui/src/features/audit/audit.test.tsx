import { screen } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { describe, expect, it } from "vitest";

import type { AuditEvent } from "@/api/types";
import { stubNetwork } from "@/testing/network";
import { renderApp } from "@/testing/render-app";
import { page } from "@/testing/samples";

import { inWords } from "./events";

describe("audit events", () => {
  const event = (id: string, action: AuditEvent["action"]): AuditEvent => ({
    object: "audit_event",
    id,
    at: 1_700_000_000,
    tenant: "acme",
    actor_kind: "administrator",
    actor: "administrator",
    request_id: "req_1",
    action,
    subject: "key_1",
    details: { reason: "it leaked", limits: { rpm: 5 } },
  });

  it("say what was set in words", () => {
    expect([null, [], {}, "x", 2, false, ["a", "b"], [600, null]].map(inWords)).toEqual([
      "–",
      "–",
      "–",
      "x",
      "2",
      "false",
      "a, b",
      "600",
    ]);
  });

  it("are read page after page", async () => {
    const network = stubNetwork({ "GET /admin/v1/audit_events": page([event("evt_2", "key.revoke")], "cursor") });
    renderApp("/audit");
    expect(await screen.findByTestId("event-key.revoke")).toHaveTextContent('it leakedlimits {"rpm":5}');
    network.answer("GET /admin/v1/audit_events", page([event("evt_1", "key.create")]));
    await userEvent.click(screen.getByRole("button", { name: "Older events" }));
    expect(await screen.findByTestId("event-key.create")).toBeVisible();
    expect(new URL(network.requests("GET /admin/v1/audit_events").at(-1)?.url ?? "").searchParams.get("after")).toBe("cursor");
    expect(screen.queryByRole("button", { name: "Older events" })).not.toBeInTheDocument();
  });
});
