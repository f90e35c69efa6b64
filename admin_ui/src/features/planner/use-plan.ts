import { useDebouncedValue } from "@mantine/hooks";
import { keepPreviousData, useQuery } from "@tanstack/react-query";
import { useState } from "react";

import { http } from "@/api/client";
import { asApiError, type ApiError } from "@/api/errors";
import type { CapacityPlan, Workload } from "@/api/types";

/** A slider that is dragged asks once, when it rests. */
const REST_MS = 300;
/** What the engine has done grows while it is looked at. */
const LIVE_POLL_MS = 10_000;

interface Planning {
  /** The newest answer; it stays while another is asked for, and while a question is refused. */
  plan: CapacityPlan | undefined;
  refusal: ApiError | null;
  /** Whether the answer is to something other than what is asked now. */
  isStale: boolean;
  refetch: () => unknown;
}

export function usePlan(question: Workload | null): Planning {
  const asked = JSON.stringify(question);
  const [settled] = useDebouncedValue(asked, REST_MS);
  const wish = JSON.parse(settled) as Workload | null;
  const query = useQuery({
    queryKey: ["plan", settled],
    queryFn: async ({ signal }): Promise<CapacityPlan> => {
      if (wish === null) throw new Error("Nothing is asked.");
      const { data } = await http.POST("/admin/v1/plan", { body: wish, signal });
      if (data === undefined) throw new Error("The plan came back empty.");
      return data;
    },
    enabled: wish !== null,
    refetchInterval: wish?.live === true ? LIVE_POLL_MS : false,
    refetchOnWindowFocus: false,
    staleTime: wish?.live === true ? 0 : 60_000,
    placeholderData: keepPreviousData,
  });
  const plan = useLast(query.data);
  const refusal = query.error === null ? null : asApiError(query.error);
  const isStale = asked !== settled || query.isPlaceholderData || query.data === undefined;
  return { plan, refusal, isStale, refetch: query.refetch };
}

/** The newest value that there was. */
function useLast<Value>(value: Value | undefined): Value | undefined {
  const [last, setLast] = useState(value);
  if (value !== undefined && value !== last) setLast(value);
  return value ?? last;
}
