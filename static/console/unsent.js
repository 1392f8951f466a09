// Whoever is asked to sign in has sent nothing: what they wrote before is kept for the page they go back to.
"use strict";
delete sessionStorage.sent;
