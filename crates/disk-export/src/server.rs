//! Answers requests.
//!
//! **Invariant**: the token is checked before anything of a volume, even its existence, is looked at.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::response::{IntoResponse as _, Response};
use http::header::{
    ACCEPT_RANGES, ALLOW, CONTENT_DISPOSITION, CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE, ETAG,
    HeaderMap, IF_RANGE, LOCATION, RANGE, RETRY_AFTER,
};
use http::{HeaderValue, Method, StatusCode};
use rustix::fs::FileType;
use rustix::io::Errno;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::task::TaskTracker;

use crate::archive;
use crate::body::produced;
use crate::disk::Disk;
use crate::manifest::{self, Form};
use crate::range::{Part, part};
use crate::route::{Audience, Route, route};
use crate::token::{TokenFile, is_presented};
use crate::view::{self, PAGE, View, Views, Wanted};
use crate::volume::{Volume, open_in};

/// Downloads at the same time. Each has some pieces of a file in memory; a client that is refused tries again.
const DOWNLOADS: usize = 8;
const BYTES: &str = "application/octet-stream";
const GZIP: &str = "application/gzip";

/// What is served.
#[derive(Debug)]
pub(crate) struct Export {
    pub(crate) volumes: Vec<Volume>,
    /// Disks of a running guest.
    pub(crate) views: Option<Views>,
    pub(crate) token: TokenFile,
    pub(crate) manifests: Option<PathBuf>,
    /// The name of the Secret in a manifest.
    pub(crate) header_secret: String,
    /// Differs between runs of the program.
    pub(crate) run: String,
}

#[derive(Debug, Clone)]
pub(crate) struct Server(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    volumes: BTreeMap<String, Volume>,
    views: Option<Views>,
    token: TokenFile,
    manifests: Option<PathBuf>,
    header_secret: String,
    run: String,
    downloads: Arc<Semaphore>,
    tasks: TaskTracker,
}

/// An answer without a file.
#[derive(Debug)]
struct Refusal(StatusCode, String);

impl Refusal {
    fn not_found() -> Self {
        Self(
            StatusCode::NOT_FOUND,
            "there is no such file in the export".to_owned(),
        )
    }
}

impl From<io::Error> for Refusal {
    fn from(error: io::Error) -> Self {
        // A link leads elsewhere.
        let is_link = matches!(
            Errno::from_io_error(&error),
            Some(Errno::LOOP | Errno::XDEV)
        );
        match error.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => Self::not_found(),
            _ if is_link => Self::not_found(),
            _ => Self(
                StatusCode::INTERNAL_SERVER_ERROR,
                format!("the volume cannot be read: {error}"),
            ),
        }
    }
}

impl Server {
    pub(crate) fn new(export: Export, tasks: TaskTracker) -> Self {
        let volumes = export.volumes.into_iter();
        Self(Arc::new(Shared {
            volumes: volumes.map(|one| (one.name.clone(), one)).collect(),
            views: export.views,
            token: export.token,
            manifests: export.manifests,
            header_secret: export.header_secret,
            run: export.run,
            downloads: Arc::new(Semaphore::new(DOWNLOADS)),
            tasks,
        }))
    }

    pub(crate) fn router(self) -> Router {
        Router::new().fallback(answer).with_state(self)
    }
}

async fn answer(State(server): State<Server>, request: Request) -> Response {
    let (parts, _) = request.into_parts();
    let route = route(parts.uri.path());
    if route == Some(Route::Ready) {
        return "OK\n".into_response();
    }
    let answered = async {
        let token = server.0.token.read().await.map_err(|error| {
            let message = format!("the token of the export cannot be read: {error}");
            Refusal(StatusCode::INTERNAL_SERVER_ERROR, message)
        })?;
        if !is_presented(&token, &parts.headers, parts.uri.query()) {
            let message = "the request has no token of this export: send it in the header \
                           x-kubevirt-export-token";
            return Err(Refusal(StatusCode::UNAUTHORIZED, message.to_owned()));
        }
        if !matches!(parts.method, Method::GET | Method::HEAD) {
            let message = "an export can only be read".to_owned();
            return Err(Refusal(StatusCode::METHOD_NOT_ALLOWED, message));
        }
        let route = route.ok_or_else(Refusal::not_found)?;
        let asked = Asked {
            headers: &parts.headers,
            is_head: parts.method == Method::HEAD,
            query: parts.uri.query(),
        };
        server.serve(route, &asked, &token).await
    };
    answered.await.unwrap_or_else(|Refusal(code, message)| {
        let mut response = (code, format!("{message}\n")).into_response();
        let headers = response.headers_mut();
        if code == StatusCode::METHOD_NOT_ALLOWED {
            headers.insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
        }
        if code == StatusCode::SERVICE_UNAVAILABLE {
            headers.insert(RETRY_AFTER, HeaderValue::from_static("5"));
        }
        response
    })
}

/// What a request says besides its path.
struct Asked<'a> {
    headers: &'a HeaderMap,
    is_head: bool,
    query: Option<&'a str>,
}

impl Server {
    async fn serve(
        &self,
        route: Route<'_>,
        asked: &Asked<'_>,
        token: &str,
    ) -> Result<Response, Refusal> {
        match route {
            Route::Ready => Ok(StatusCode::OK.into_response()),
            Route::Raw(name) => {
                let disk = self.disk(name).await?;
                self.send_file(disk, asked)
            }
            Route::Gzip(name) => {
                let disk = self.disk(name).await?;
                let mut response = typed(GZIP);
                if !asked.is_head {
                    let permit = self.permit()?;
                    *response.body_mut() =
                        produced(&self.0.tasks, permit, move |to| disk.send_compressed(to));
                }
                Ok(response)
            }
            Route::Archive(name) => {
                self.files(name)?;
                let mut response = typed(GZIP);
                if !asked.is_head {
                    let (server, name) = (self.clone(), name.to_owned());
                    *response.body_mut() = produced(&self.0.tasks, self.permit()?, move |to| {
                        let root = server.files(&name).map_err(|_| io::ErrorKind::NotFound)?;
                        archive::send_archive(root, to)
                    });
                }
                Ok(response)
            }
            Route::DirectoryName => {
                let query = asked.query.map(|query| format!("?{query}"));
                let to = format!("dir/{}", query.unwrap_or_default());
                let to = HeaderValue::try_from(to).map_err(|_| Refusal::not_found())?;
                let mut response = StatusCode::MOVED_PERMANENTLY.into_response();
                response.headers_mut().insert(LOCATION, to);
                Ok(response)
            }
            Route::Entry(name, names) => self.entry(name, &names, asked).await,
            Route::BackupData(name) => self.backup_data(name, asked).await,
            Route::BackupMap(name) => self.backup_map(name, asked).await,
            Route::Manifest(audience) => self.manifest(audience, asked).await,
            Route::HeaderSecret => {
                let form = Form::wanted(asked.headers);
                let text = manifest::secret(&self.0.header_secret, token, form);
                Ok(([(CONTENT_TYPE, form.media_type())], text).into_response())
            }
        }
    }

    /// The right to a thread and to memory.
    fn permit(&self) -> Result<OwnedSemaphorePermit, Refusal> {
        let permit = Arc::clone(&self.0.downloads).try_acquire_owned();
        permit.map_err(|_| {
            let message = format!("{DOWNLOADS} downloads run already: try again later");
            Refusal(StatusCode::SERVICE_UNAVAILABLE, message)
        })
    }

    fn volume(&self, name: &str) -> Result<&Volume, Refusal> {
        self.0.volumes.get(name).ok_or_else(Refusal::not_found)
    }

    fn files(&self, name: &str) -> Result<&std::os::fd::OwnedFd, Refusal> {
        self.volume(name)?.files().ok_or_else(Refusal::not_found)
    }

    async fn disk(&self, name: &str) -> Result<Disk, Refusal> {
        self.volume(name)?;
        let (server, name) = (self.clone(), name.to_owned());
        self.blocking(move || {
            let volume = server.0.volumes.get(&name).ok_or(io::ErrorKind::NotFound)?;
            Disk::of(volume.disk()?, &server.0.run)
        })
        .await
    }

    /// A file with its length, or the part of it that the client wants.
    fn send_file(&self, disk: Disk, asked: &Asked<'_>) -> Result<Response, Refusal> {
        let (mut response, bytes) = match sized(asked.headers, &disk.tag, disk.length) {
            Ok(found) => found,
            Err(response) => return Ok(*response),
        };
        if !asked.is_head {
            let permit = self.permit()?;
            *response.body_mut() = produced(&self.0.tasks, permit, move |to| disk.send(bytes, to));
        }
        Ok(response)
    }

    /// A disk of the backup, connected, and the right to a thread.
    async fn connect(&self, name: &str) -> Result<(View, OwnedSemaphorePermit), Refusal> {
        let views = self.0.views.as_ref();
        if !views.is_some_and(|views| views.has(name)) {
            return Err(Refusal::not_found());
        }
        let permit = self.permit()?;
        let (server, name) = (self.clone(), name.to_owned());
        let connecting = self.0.tasks.spawn_blocking(move || {
            panics::catch_io(|| match &server.0.views {
                Some(views) => views.connect(&name),
                None => Err(io::ErrorKind::NotFound.into()),
            })
        });
        let connected = connecting
            .await
            .unwrap_or_else(|error| Err(io::Error::other(error)));
        let view = connected.map_err(|error| {
            let message = format!("the guest does not offer its disks: {error}");
            Refusal(StatusCode::SERVICE_UNAVAILABLE, message)
        })?;
        Ok((view, permit))
    }

    /// The part that the parameters name, as `KubeVirt` has it; without them the headers count.
    async fn backup_data(&self, name: &str, asked: &Asked<'_>) -> Result<Response, Refusal> {
        let wanted = Wanted::parse(asked.query).map_err(bad)?;
        let (mut view, permit) = self.connect(name).await?;
        let size = view.size();
        let (mut response, bytes) = if wanted.is_part() {
            let bytes = wanted.part(size).map_err(bad)?;
            let mut response = typed(BYTES);
            let amount = bytes.end.saturating_sub(bytes.start);
            set(&mut response, CONTENT_LENGTH, &amount.to_string());
            (response, bytes)
        } else {
            let tag = format!("\"{size:x}-{}\"", self.0.run);
            match sized(asked.headers, &tag, size) {
                Ok(found) => found,
                Err(response) => return Ok(*response),
            }
        };
        if !asked.is_head {
            *response.body_mut() = produced(&self.0.tasks, permit, move |to| {
                view::send(&mut view, bytes, to)
            });
        }
        Ok(response)
    }

    async fn backup_map(&self, name: &str, asked: &Asked<'_>) -> Result<Response, Refusal> {
        let wanted = Wanted::parse(asked.query).map_err(bad)?;
        let (mut view, permit) = self.connect(name).await?;
        let part = wanted.part(view.size()).map_err(bad)?;
        let page_size = wanted.page_size.unwrap_or(PAGE);
        let page = self
            .blocking(move || {
                let _permit = permit;
                view::map(&mut view, part, page_size)
            })
            .await?;
        Ok(axum::Json(page).into_response())
    }

    async fn entry(
        &self,
        name: &str,
        names: &[Vec<u8>],
        asked: &Asked<'_>,
    ) -> Result<Response, Refusal> {
        use std::os::unix::ffi::OsStrExt as _;
        self.files(name)?;
        let path: PathBuf = names
            .iter()
            .map(|name| std::ffi::OsStr::from_bytes(name))
            .collect();
        let path = if names.is_empty() { ".".into() } else { path };
        let (server, volume) = (self.clone(), name.to_owned());
        let found = self
            .blocking(move || {
                let root = server.files(&volume).map_err(|_| io::ErrorKind::NotFound)?;
                Found::at(root, &path, &server.0.run)
            })
            .await?;
        match found {
            Found::File(file) => {
                let mut response = self.send_file(file, asked)?;
                // Nothing of a guest is shown as a page by a browser.
                set(&mut response, CONTENT_DISPOSITION, "attachment");
                Ok(response)
            }
            Found::Directory(directory) => {
                let mut response = typed("text/html; charset=utf-8");
                if !asked.is_head {
                    let permit = self.permit()?;
                    *response.body_mut() = produced(&self.0.tasks, permit, move |to| {
                        archive::send_list(&directory, to)
                    });
                }
                Ok(response)
            }
        }
    }

    async fn manifest(&self, audience: Audience, asked: &Asked<'_>) -> Result<Response, Refusal> {
        let directory = self.0.manifests.as_deref().ok_or_else(Refusal::not_found)?;
        let form = Form::wanted(asked.headers);
        let text = manifest::all(directory, audience, form).await?;
        Ok(([(CONTENT_TYPE, form.media_type())], text).into_response())
    }

    async fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> io::Result<T> + Send + 'static,
    ) -> Result<T, Refusal> {
        let done = self.0.tasks.spawn_blocking(|| panics::catch_io(work)).await;
        let done =
            done.map_err(|error| Refusal(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()))?;
        Ok(done?)
    }
}

enum Found {
    File(Disk),
    Directory(File),
}

impl Found {
    fn at(root: &std::os::fd::OwnedFd, path: &Path, run: &str) -> io::Result<Self> {
        let file = open_in(root, path)?;
        let kind = FileType::from_raw_mode(rustix::fs::fstat(&file)?.st_mode);
        match kind {
            FileType::Directory => Ok(Self::Directory(file)),
            FileType::RegularFile => Ok(Self::File(Disk::of(file, run)?)),
            _ => Err(io::ErrorKind::NotFound.into()),
        }
    }
}

fn bad(message: String) -> Refusal {
    Refusal(StatusCode::BAD_REQUEST, message)
}

/// The head of the answer with a file of this length, or with the part that the headers ask for, and that part. The
/// answer alone, if there is no such part.
fn sized(
    headers: &HeaderMap,
    tag: &str,
    length: u64,
) -> Result<(Response, Range<u64>), Box<Response>> {
    let text = |name| headers.get(name).and_then(|value| value.to_str().ok());
    let wanted = part(text(RANGE), text(IF_RANGE), tag, length);
    let mut response = typed(BYTES);
    let bytes = match wanted {
        Part::Whole => 0..length,
        Part::Bytes(bytes) => {
            *response.status_mut() = StatusCode::PARTIAL_CONTENT;
            let last = bytes.end.saturating_sub(1);
            set(
                &mut response,
                CONTENT_RANGE,
                &format!("bytes {}-{last}/{length}", bytes.start),
            );
            bytes
        }
        Part::Unsatisfiable => {
            let mut response = StatusCode::RANGE_NOT_SATISFIABLE.into_response();
            set(&mut response, CONTENT_RANGE, &format!("bytes */{length}"));
            return Err(Box::new(response));
        }
    };
    set(&mut response, ACCEPT_RANGES, "bytes");
    set(&mut response, ETAG, tag);
    let amount = bytes.end.saturating_sub(bytes.start);
    set(&mut response, CONTENT_LENGTH, &amount.to_string());
    Ok((response, bytes))
}

fn typed(media_type: &'static str) -> Response {
    ([(CONTENT_TYPE, media_type)], Body::empty()).into_response()
}

/// Numbers and tags are valid values.
fn set(response: &mut Response, name: http::HeaderName, value: &str) {
    if let Ok(value) = HeaderValue::try_from(value) {
        response.headers_mut().insert(name, value);
    }
}
