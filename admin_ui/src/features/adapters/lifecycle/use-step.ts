import { useMutation } from "@tanstack/react-query";

import { http } from "@/api/client";
import type { Version } from "@/api/types";

import { useRefreshAdapter } from "../use-adapters";
import type { StepKind } from "./steps";

interface Order {
  kind: StepKind;
  reason: string;
  force: boolean;
}

/** Takes one step of a version's life; a refusal is told in a toast, as with every change. */
export function useStep(slug: string, version: Version) {
  const refresh = useRefreshAdapter(slug, version.adapter);
  return useMutation({
    mutationFn: (order: Order) => send(slug, version, order),
    onSettled: refresh,
  });
}

async function send(slug: string, version: Version, { kind, reason, force }: Order): Promise<void> {
  const params = { path: { slug, name: version.adapter, number: version.number } };
  const why = reason === "" ? {} : { reason };
  switch (kind) {
    case "retire":
      await http.POST("/admin/v1/tenants/{slug}/adapters/{name}/versions/{number}/retire", {
        params,
        body: { ...why, force },
      });
      break;
    case "quarantine":
      await http.POST("/admin/v1/tenants/{slug}/adapters/{name}/versions/{number}/quarantine", {
        params,
        body: why,
      });
      break;
    case "restore":
      await http.POST("/admin/v1/tenants/{slug}/adapters/{name}/versions/{number}/restore", { params });
      break;
    case "release":
      await http.POST("/admin/v1/tenants/{slug}/adapters/{name}/versions/{number}/release", { params });
      break;
    case "retry":
      await http.POST("/admin/v1/tenants/{slug}/adapters/{name}/versions/{number}/retry", { params });
      break;
    case "delete":
      await http.DELETE("/admin/v1/tenants/{slug}/adapters/{name}/versions/{number}", { params });
  }
}
