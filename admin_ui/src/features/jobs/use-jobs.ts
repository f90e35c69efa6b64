import { useInfiniteQuery, useQueryClient } from "@tanstack/react-query";

import { api, http } from "@/api/client";
import type { Job } from "@/api/types";

const POLL_MS = 3000;
const PAGE = 50;

export type JobState = Job["state"];

/** Jobs in one state, or all of them: the newest first. */
export function useJobs(state: JobState | null) {
  return useInfiniteQuery({
    queryKey: ["jobs", state],
    queryFn: async ({ pageParam, signal }) => {
      const query = { limit: PAGE, ...(state !== null && { state }), ...(pageParam !== null && { after: pageParam }) };
      const { data } = await http.GET("/admin/v1/jobs", { params: { query }, signal });
      if (data === undefined) throw new Error("The list came back empty.");
      return data;
    },
    initialPageParam: null as string | null,
    getNextPageParam: ({ next }) => next,
    refetchInterval: POLL_MS,
  });
}

export function useRetry() {
  const client = useQueryClient();
  return api.useMutation("post", "/admin/v1/jobs/{job_id}/retry", {
    onSuccess: () => client.invalidateQueries({ queryKey: ["jobs"] }),
  });
}

export function useChores() {
  return api.useQuery("get", "/admin/v1/chores", {}, { refetchInterval: POLL_MS });
}
