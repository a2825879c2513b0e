//! The integration tests are in `it`: this library is empty, and there so that the package has a target.
