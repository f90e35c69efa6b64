import { Center, Container, Loader } from "@mantine/core";
import type { ReactNode } from "react";
import { Redirect } from "wouter";

import { FailureNotice } from "@/components/feedback/query-state";
import { Shell } from "@/components/layout/shell";

import { useSession, useSignOut } from "./session";

/** The pages behind it are drawn only for somebody who is signed in; whenever the session ends, so do they. */
export function RequireSession({ children }: { children: ReactNode }) {
  const session = useSession();
  const signOut = useSignOut();
  if (session.isPending) {
    return (
      <Center mih="100vh">
        <Loader aria-label="Checking your session" />
      </Center>
    );
  }
  if (session.isError) {
    return (
      <Container size="xs" py="xl" component="main">
        <FailureNotice error={session.error} onRetry={() => void session.refetch()} />
      </Container>
    );
  }
  if (session.data === null) return <Redirect to="/sign-in" replace />;
  return (
    <Shell
      onSignOut={() => {
        signOut.mutate();
      }}
    >
      {children}
    </Shell>
  );
}
