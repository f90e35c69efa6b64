/** What the admin API says when it refuses; the page shows these words and the request id, never its own guess. */
export class ApiError extends Error {
  override readonly name = "ApiError";

  constructor(
    message: string,
    readonly status: number,
    readonly code: string,
    readonly requestId: string | null,
    readonly param: string | null = null,
  ) {
    super(message);
  }
}

interface ErrorBody {
  error: { message: string; code: string; param?: string | null };
  request_id?: string;
}

function isErrorBody(body: unknown): body is ErrorBody {
  if (typeof body !== "object" || body === null || !("error" in body)) return false;
  const { error } = body;
  return typeof error === "object" && error !== null && "message" in error && typeof error.message === "string";
}

export async function readApiError(response: Response): Promise<ApiError> {
  const body: unknown = await response.json().catch(() => null);
  return apiErrorOf(response.status, body, response.headers.get("x-request-id"));
}

/** `body` as it was parsed; null for one that is no JSON. */
export function apiErrorOf(status: number, body: unknown, requestId: string | null): ApiError {
  if (isErrorBody(body)) {
    const { message, code, param } = body.error;
    return new ApiError(message, status, code, body.request_id ?? requestId, param ?? null);
  }
  return new ApiError(`The server answered with status ${status}.`, status, "unreadable", requestId);
}

export function unreachable(): ApiError {
  return new ApiError("The admin server cannot be reached. Is it running?", 0, "unreachable", null);
}

export function asApiError(error: unknown): ApiError {
  if (error instanceof ApiError) return error;
  return new ApiError(error instanceof Error ? error.message : "Something failed.", 0, "unexpected", null);
}
