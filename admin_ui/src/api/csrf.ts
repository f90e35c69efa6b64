/** The session's CSRF token. In memory only: after a reload, GET /auth/session tells it again. */
let token: string | null = null;

export const csrf = {
  get: (): string | null => token,
  set: (value: string | null): void => {
    token = value;
  },
};
