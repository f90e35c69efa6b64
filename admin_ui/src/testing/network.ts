import { vi } from "vitest";

export interface Reply {
  status?: number;
  body?: unknown;
  headers?: Record<string, string>;
}

type Answer = Reply | ((request: Request) => Reply | Promise<Reply>);

export function refusal(status: number, code: string, message: string, requestId = "req_test"): Reply {
  return {
    status,
    body: { error: { message, type: "invalid_request_error", param: null, code }, request_id: requestId },
    headers: { "x-request-id": requestId },
  };
}

export const session = { role: "owner", csrf_token: "csrf-in-memory" };

/** Stands in for the network: routes by "METHOD /path"; a request that no route expects fails the test. */
export function stubNetwork(routes: Record<string, Answer>) {
  const seen: Request[] = [];
  const answers: Record<string, Answer> = { "GET /auth/session": { body: session }, ...routes };
  vi.stubGlobal("fetch", async (request: Request): Promise<Response> => {
    seen.push(request.clone());
    const route = `${request.method} ${new URL(request.url).pathname}`;
    const answer = answers[route];
    if (answer === undefined) throw new Error(`no route for ${route}`);
    const { status = 200, body, headers = {} } = typeof answer === "function" ? await answer(request) : answer;
    return new Response(body === undefined ? null : JSON.stringify(body), {
      status,
      headers: { "content-type": "application/json", ...headers },
    });
  });
  return {
    answer: (route: string, reply: Answer): void => {
      answers[route] = reply;
    },
    requests: (route: string): Request[] =>
      seen.filter((request) => `${request.method} ${new URL(request.url).pathname}` === route),
  };
}
