//! Login of a client. Another thread checks the password, and further input waits for the verdict.

use quorate_access::{Claimed, NotChecked};
use quorate_replica::front::Failure;
use quorate_wire::streams::{NodeFrame, Password};

use super::{Connection, ConnectionState};
use crate::streams::{refusal::Refusal, shared::Cx};

impl Connection {
    /// Sends a password to the checking thread, and waits for the verdict.
    pub(super) fn start_password_check(
        &mut self,
        name: &str,
        password: Password<'_>,
        cx: &mut Cx<'_>,
    ) {
        let Some(users) = cx.requests.users() else {
            return self.refuse_pending(Failure::NoQuorum);
        };
        let claim = match Claimed::of(users, name.as_bytes()) {
            // The default user needs no password.
            Claimed::Granted => {
                self.login.password_user = None;
                return self.answer_pending(&NodeFrame::LoginAccepted);
            }
            Claimed::Pointless => return self.refuse_password(cx),
            Claimed::ToProve(claim) => claim,
        };
        match cx.shared.password_checks.check(self.id, &claim, password.0) {
            Ok(ticket) => self.state = ConnectionState::CheckingPassword(ticket, Box::new(claim)),
            Err(why @ (NotChecked::Never | NotChecked::Busy)) => self.refuse_pending(why),
        }
    }

    /// Handles the verdict of the thread that checked a password.
    pub(crate) fn on_password_verdict(&mut self, ticket: u64, fits: bool, cx: &mut Cx<'_>) {
        match std::mem::replace(&mut self.state, ConnectionState::AwaitingHello) {
            ConnectionState::CheckingPassword(waited, claim) if waited == ticket => {
                // Requests are accepted again, whatever the verdict.
                self.become_ready();
                match claim.proved(cx.requests.users()).filter(|_| fits) {
                    Some(user) => {
                        self.login.password_user = Some(user);
                        self.answer_pending(&NodeFrame::LoginAccepted);
                    }
                    None => self.refuse_password(cx),
                }
            }
            other => self.state = other,
        }
    }

    /// Ends the connection after a wrong password, so that a client must reconnect for each guess.
    fn refuse_password(&mut self, cx: &mut Cx<'_>) {
        cx.shared.wrong_password_count += 1;
        self.end_with_error(Refusal::wrong_password(), cx);
    }
}
