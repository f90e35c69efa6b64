import { Alert, Button, Group, List, Text } from "@mantine/core";
import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";

import type { OpenUpload } from "@/api/types";
import { toastDone } from "@/components/feedback/toasts";
import { humanBytes } from "@/format/bytes";
import { dateTime } from "@/format/time";

import { forgetUpload, openUploads } from "./transfer";

/** What the server still has of uploads that broke off, from this machine or another. */
export function StartedEarlier({ slug, adapter }: { slug: string; adapter: string }) {
  const client = useQueryClient();
  const queryKey = ["uploads", slug, adapter];
  const query = useQuery({ queryKey, queryFn: () => openUploads(slug, adapter), staleTime: 0, gcTime: 0 });
  const forget = useMutation({
    mutationFn: async (uploads: readonly OpenUpload[]) => {
      await Promise.all(uploads.map(({ id }) => forgetUpload(slug, id)));
    },
    onSuccess: () => {
      toastDone("The upload is forgotten.");
    },
    onSettled: () => client.invalidateQueries({ queryKey }),
  });
  const uploads = query.data ?? [];
  if (uploads.length === 0) return null;
  return (
    <Alert color="blue" variant="light" title="An upload of this adapter waits to go on" data-testid="started-earlier">
      <Group justify="space-between" align="flex-end" gap="sm">
        <div>
          <List fz="sm" spacing={2}>
            {uploads.map((upload) => (
              <List.Item key={upload.id}>
                {upload.filename}: {humanBytes(upload.received)} of {humanBytes(upload.length)}, kept until{" "}
                {dateTime(upload.expires_at)}
              </List.Item>
            ))}
          </List>
          <Text fz="sm" mt={4}>
            Drop the same files, and only the rest is sent.
          </Text>
        </div>
        <Button
          size="xs"
          variant="default"
          loading={forget.isPending}
          onClick={() => {
            forget.mutate(uploads);
          }}
        >
          Forget it
        </Button>
      </Group>
    </Alert>
  );
}
