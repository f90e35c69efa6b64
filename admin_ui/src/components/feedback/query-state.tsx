import { Alert, Button, Group, Skeleton, Stack, Text } from "@mantine/core";
import type { ReactNode } from "react";

import { asApiError } from "@/api/errors";

export function FailureNotice({ error, onRetry }: { error: unknown; onRetry?: () => void }) {
  const { message, requestId } = asApiError(error);
  return (
    <Alert color="red" variant="light" title="This could not be loaded" role="alert">
      <Group justify="space-between" gap="sm">
        <div>
          <Text fz="sm">{message}</Text>
          {requestId !== null && (
            <Text fz="xs" ff="monospace">
              Request {requestId}
            </Text>
          )}
        </div>
        {onRetry && (
          <Button size="xs" variant="default" onClick={onRetry}>
            Try again
          </Button>
        )}
      </Group>
    </Alert>
  );
}

interface QueryLike<Data> {
  data: Data | undefined;
  error: unknown;
  refetch: () => unknown;
}

/**
 * What every page does with a query: bones while it loads, the failure in words, and the last good data kept on
 * screen beneath a notice when only a later poll failed.
 */
export function QueryState<Data>({ query, children }: { query: QueryLike<Data>; children: (data: Data) => ReactNode }) {
  const failure = query.error !== null && (
    <FailureNotice error={query.error} onRetry={() => void query.refetch()} />
  );
  if (query.data === undefined) {
    return (
      failure || (
        <Stack gap="sm" role="status" aria-busy="true" aria-label="Loading">
          <Skeleton height={64} />
          <Skeleton height={160} />
        </Stack>
      )
    );
  }
  return (
    <Stack gap="md">
      {failure}
      {children(query.data)}
    </Stack>
  );
}
