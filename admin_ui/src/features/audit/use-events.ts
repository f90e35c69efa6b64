import { useInfiniteQuery } from "@tanstack/react-query";

import { http } from "@/api/client";

const PAGE = 50;

/** Events of a tenant, or of everybody and the platform: the newest first, page after page. */
export function useEvents(whose: string | null) {
  return useInfiniteQuery({
    queryKey: ["audit_events", whose],
    queryFn: async ({ pageParam, signal }) => {
      const query = pageParam === null ? { limit: PAGE } : { limit: PAGE, after: pageParam };
      const { data } =
        whose === null
          ? await http.GET("/admin/v1/audit_events", { params: { query }, signal })
          : await http.GET("/admin/v1/tenants/{slug}/audit_events", { params: { path: { slug: whose }, query }, signal });
      if (data === undefined) throw new Error("The list came back empty.");
      return data;
    },
    initialPageParam: null as string | null,
    getNextPageParam: ({ next }) => next,
  });
}
